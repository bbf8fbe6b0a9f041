package config

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.etcd.io/etcd/client/pkg/v3/types"
)

// readInitialCluster keeps an error for CheckBootstrap.
func (c *Config) readInitialCluster() {
	if c.initialCluster == "" {
		c.initialClusterErr = errors.New("--initial-cluster is empty: name at least this member")
		return
	}
	if !utf8.ValidString(c.initialCluster) || !utf8.ValidString(c.InitialClusterToken) {
		c.initialClusterErr = fmt.Errorf("--initial-cluster %q or --initial-cluster-token %q is not UTF-8", c.initialCluster, c.InitialClusterToken)
		return
	}
	cluster, err := types.NewURLsMap(c.initialCluster)
	if err != nil {
		c.initialClusterErr = fmt.Errorf("--initial-cluster %q: %w", c.initialCluster, err)
		return
	}
	c.InitialCluster = cluster
}

// CheckBootstrap checks what only a server without data needs: that this server
// is one of the initial members, under the URLs that it advertises. A server
// with data doesn't look at these settings, as in etcd: they may have any
// value, or be left out.
func (c *Config) CheckBootstrap(ctx context.Context) error {
	if c.initialClusterErr != nil {
		return c.initialClusterErr
	}
	own := c.InitialCluster[c.Name]
	if own == nil {
		return fmt.Errorf("couldn't find local name %q in the initial cluster configuration (--name, --initial-cluster)", c.Name)
	}
	seen := map[string]bool{}
	for _, us := range c.InitialCluster {
		for _, u := range us {
			if seen[u.String()] {
				return fmt.Errorf("--initial-cluster %s has duplicate url %s", c.InitialCluster, u.String())
			}
			seen[u.String()] = true
		}
	}
	if !c.NewCluster || sameAddresses(ctx, own, c.AdvertisePeerURLs) {
		return nil
	}
	if missing := without(own, c.AdvertisePeerURLs); len(missing) > 0 {
		return fmt.Errorf("--initial-cluster has %s=%s but missing from --initial-advertise-peer-urls=%s",
			c.Name, strings.Join(missing, ","), types.URLs(c.AdvertisePeerURLs))
	}
	return fmt.Errorf("--initial-advertise-peer-urls has %s but missing from --initial-cluster=%s",
		strings.Join(without(c.AdvertisePeerURLs, own), ","), c.InitialCluster)
}

func without(us, other []url.URL) []string {
	var missing []string
	for _, u := range us {
		if !slices.ContainsFunc(other, func(o url.URL) bool { return o.String() == u.String() }) {
			missing = append(missing, u.String())
		}
	}
	return missing
}

// sameAddresses reports whether two lists name the same addresses, names and
// addresses being the same if DNS says so.
func sameAddresses(ctx context.Context, a, b []url.URL) bool {
	if len(a) != len(b) {
		return false
	}
	if len(without(a, b)) == 0 && len(without(b, a)) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	x, y := resolved(ctx, a), resolved(ctx, b)
	return slices.Equal(x, y)
}

// SameURLs is sameAddresses for URLs as members show them.
func SameURLs(ctx context.Context, a, b []string) bool {
	x, err := types.NewURLs(a)
	if err != nil {
		return false
	}
	y, err := types.NewURLs(b)
	return err == nil && sameAddresses(ctx, x, y)
}

func resolved(ctx context.Context, us []url.URL) []string {
	out := make([]string, len(us))
	for i, u := range us {
		out[i] = u.String()
		host, port, err := net.SplitHostPort(u.Host)
		if isUnix(u) || err != nil {
			continue
		}
		if addrs, err := net.DefaultResolver.LookupHost(ctx, host); err == nil && len(addrs) > 0 {
			out[i] = u.Scheme + "://" + net.JoinHostPort(addrs[0], port)
		}
	}
	slices.Sort(out)
	return out
}

// advertiseRealHost replaces the default advertised host by this machine's
// address when the server listens on all addresses: other machines can't use
// "localhost". It follows etcd, which does so for 0.0.0.0 alone.
func (c *Config) advertiseRealHost(find func() string) {
	replace := func(advertised *[]url.URL, def string, listen []url.URL) {
		if len(*advertised) != 1 || (*advertised)[0].String() != def || len(listen) == 0 || listen[0].Hostname() != "0.0.0.0" {
			return
		}
		host := find()
		if host == "" {
			return
		}
		(*advertised)[0].Host = net.JoinHostPort(host, listen[0].Port())
		c.Notices = append(c.Notices, Notice{Text: "detected default host for advertise", Setting: "host", Value: host})
	}
	replace(&c.AdvertisePeerURLs, defaultPeerURL, c.ListenPeerURLs)
	replace(&c.AdvertiseClientURLs, defaultClientURL, c.ListenClientURLs)
}

// defaultHost is the address that this machine uses towards others, or empty.
// Connecting a UDP socket sends nothing.
func defaultHost() string {
	conn, err := net.Dial("udp4", "192.0.2.1:9")
	if err != nil {
		return ""
	}
	defer conn.Close()
	host, _, _ := net.SplitHostPort(conn.LocalAddr().String())
	return host
}
