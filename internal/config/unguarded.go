package config

import (
	"net/url"
	"slices"

	"go.etcd.io/etcd/client/pkg/v3/transport"
)

// noteUnguarded warns of settings of TLS that don't do what their names promise, because of
// others that are there or missing. etcd accepts them all.
func (d *declaration) noteUnguarded() error {
	c := d.cfg
	d.noteUnguardedSide("", c.ClientTLS, c.ClientAutoTLS, slices.Concat(c.ListenClientURLs, c.ListenClientHTTPURLs))
	d.noteUnguardedSide("peer-", c.PeerTLS, c.PeerAutoTLS, c.ListenPeerURLs)
	return nil
}

func (d *declaration) noteUnguardedSide(prefix string, t transport.TLSInfo, auto bool, urls []url.URL) {
	auth, authority := prefix+"client-cert-auth", prefix+"trusted-ca-file"
	demands := t.ClientCertAuth || t.TrustedCAFile != ""
	auto = auto && t.Empty() // given certificates take precedence
	for _, s := range []struct {
		name  string
		given bool
		value string
	}{
		{crlFile[prefix], t.CRLFile != "", t.CRLFile},
		{prefix + "cert-allowed-cn", len(t.AllowedCNs) > 0, list{&t.AllowedCNs}.String()},
		{allowedHostname[prefix], len(t.AllowedHostnames) > 0, list{&t.AllowedHostnames}.String()},
		{auth, t.ClientCertAuth, "true"},
		{authority, t.TrustedCAFile != "", t.TrustedCAFile},
	} {
		switch {
		case !s.given:
		case auto:
			d.note(true, "--"+s.name+" has no effect: with --"+prefix+"auto-tls no certificates are demanded", s.name, s.value)
		case !demands:
			d.note(true, "--"+s.name+" has no effect without --"+auth+" or --"+authority+": no certificates are demanded", s.name, s.value)
		}
	}
	if auto || !demands {
		return
	}
	if t.TrustedCAFile == "" {
		d.note(true, "--"+auth+" without --"+authority+" accepts certificates of each authority that this system trusts", auth, "true")
	}
	for _, u := range urls {
		if u.Scheme == "http" || u.Scheme == "unix" {
			d.note(true, "the URL has no TLS: no certificate is demanded there", auth, u.String())
		}
	}
}

// The names of a client's settings that aren't a peer's without the prefix.
var (
	crlFile         = map[string]string{"": "client-crl-file", "peer-": "peer-crl-file"}
	allowedHostname = map[string]string{"": "client-cert-allowed-hostname", "peer-": "peer-cert-allowed-hostname"}
)
