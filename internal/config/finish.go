package config

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.etcd.io/etcd/client/pkg/v3/tlsutil"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/pkg/v3/types"
)

// finish makes settings of what was given, and refuses what can't be meant.
func (d *declaration) finish() (*Config, error) {
	c := d.cfg
	d.reportUnused()
	for _, step := range []func() error{
		c.checkLogging, c.checkURLs, c.checkCluster, c.checkTimes, c.finishCompaction,
		d.readFeatureGates, c.finishTLS, d.noteUnguarded, c.finishPartitions, c.checkLimits, c.checkTracing, c.checkUI,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	c.advertiseRealHost(defaultHost)
	if c.initialCluster == defaultCluster && c.Name != defaultName {
		c.initialCluster = c.ownCluster()
	}
	c.readInitialCluster()
	c.given = d.given
	c.NewCluster = c.clusterState == "new"
	if c.DataDir == "" {
		c.DataDir = c.dataDir()
		d.note(true, "'data-dir' was empty; using default", "data-dir", c.DataDir)
	}
	if c.Name == defaultName {
		d.note(true, "it isn't recommended to use default name, please set a value for --name. "+
			"Members with the same name can't found a cluster together", "name", c.Name)
	}
	return c, nil
}

func (c *Config) dataDir() string { return cmp.Or(c.DataDir, c.Name+".stoa") }

// reportUnused warns of what was asked for and is not done.
func (d *declaration) reportUnused() {
	for _, s := range d.settings {
		if s.unused && d.given[s.name] && !slices.Contains(s.harmless, s.value.String()) {
			d.note(true, "--"+s.name+" has no effect: "+s.missing, s.name, s.value.String())
		}
	}
	if d.given["max-snapshots"] {
		d.note(true, "--max-snapshots is deprecated in 3.6 and will be decommissioned in 3.8.", "max-snapshots", "")
	}
	if d.given["v2-deprecation"] {
		d.note(true, "--v2-deprecation is deprecated and scheduled for removal in v3.8. The default value is enforced, ignoring user input.", "v2-deprecation", "write-only")
	}
}

// ownCluster is a cluster of this server alone.
func (c *Config) ownCluster() string {
	all := make([]string, len(c.AdvertisePeerURLs))
	for i, u := range c.AdvertisePeerURLs {
		all[i] = c.Name + "=" + u.String()
	}
	return strings.Join(all, ",")
}

func (c *Config) checkLogging() error {
	if c.logger != "zap" {
		return fmt.Errorf("unknown --logger %q: only zap is there", c.logger)
	}
	if len(c.Log.Outputs) == 0 || (len(c.Log.Outputs) == 1 && c.Log.Outputs[0] == "") {
		c.Log.Outputs = []string{"default"}
	}
	if len(c.Log.Outputs) > 1 && slices.Contains(c.Log.Outputs, "default") {
		return errors.New(`--log-outputs: multi logoutput for "default" is not supported yet`)
	}
	if len(c.Log.Outputs) > 1 && slices.Contains(c.Log.Outputs, "systemd/journal") {
		return fmt.Errorf("--log-outputs: systemd/journal can't be combined with other outputs (%q)", c.Log.Outputs)
	}
	if c.Log.Format == "" {
		c.Log.Format = "json"
	}
	if c.Log.Format != "json" && c.Log.Format != "console" {
		return fmt.Errorf("--log-format: unknown log format: %s, supported values json, console", c.Log.Format)
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error", "dpanic", "panic", "fatal"}, strings.ToLower(c.Log.Level)) {
		return fmt.Errorf("--log-level: unknown level %q, supported values debug, info, warn, error, panic, fatal", c.Log.Level)
	}
	return c.finishRotation()
}

// finishRotation follows etcd: exactly one of the outputs must be a file, unless there is an
// audit log to be rotated.
func (c *Config) finishRotation() error {
	if c.AuditLog != "" && slices.Contains(c.Log.Outputs, c.AuditLog) {
		return fmt.Errorf("--audit-log: %q is one of --log-outputs", c.AuditLog)
	}
	if !c.rotate {
		return nil
	}
	var files []string
	for _, out := range c.Log.Outputs {
		if !slices.Contains([]string{"default", "stdout", "stderr", "systemd/journal"}, out) {
			files = append(files, out)
		}
	}
	if c.AuditLog != "" {
		c.AuditRotation = &Rotation{File: c.AuditLog}
		if err := json.Unmarshal([]byte(c.rotation), c.AuditRotation); err != nil {
			return fmt.Errorf("--log-rotation-config-json: %w", err)
		}
		if len(files) == 0 {
			return nil
		}
	}
	if len(files) != 1 {
		return fmt.Errorf("--enable-log-rotation: --log-outputs requires a single file path, not %q", c.Log.Outputs)
	}
	c.Log.Rotation = &Rotation{File: files[0]}
	if err := json.Unmarshal([]byte(c.rotation), c.Log.Rotation); err != nil {
		return fmt.Errorf("--log-rotation-config-json: %w", err)
	}
	return nil
}

func (c *Config) checkURLs() error {
	for _, l := range []struct {
		flag string
		urls []url.URL
	}{
		{"listen-peer-urls", c.ListenPeerURLs},
		{"listen-client-urls", c.ListenClientURLs},
		{"listen-client-http-urls", c.ListenClientHTTPURLs},
		{"listen-metrics-urls", c.ListenMetricsURLs},
	} {
		for _, u := range l.urls {
			if err := checkListen(u); err != nil {
				return fmt.Errorf("--%s: %w", l.flag, err)
			}
		}
	}
	for _, u := range c.AdvertisePeerURLs {
		if err := checkAdvertised(u); err != nil {
			return fmt.Errorf(`--initial-advertise-peer-urls %q must be "host:port" (%w)`, types.URLs(c.AdvertisePeerURLs), err)
		}
	}
	for _, u := range c.AdvertiseClientURLs {
		if err := checkAdvertised(u); err != nil {
			return fmt.Errorf(`--advertise-client-urls %q must be in the format "host:port", "unix:/path/to/socket" or "unixs:/path/to/socket" (%w)`, types.URLs(c.AdvertiseClientURLs), err)
		}
	}
	return nil
}

func isUnix(u url.URL) bool { return u.Scheme == "unix" || u.Scheme == "unixs" }

// checkListen wants an address of this machine, not a name that DNS may send
// elsewhere.
func checkListen(u url.URL) error {
	if isUnix(u) {
		return nil
	}
	host, _, err := net.SplitHostPort(u.Host)
	if err != nil {
		return err
	}
	if host != "localhost" && net.ParseIP(host) == nil {
		return fmt.Errorf("expected IP in URL for binding (%s)", u.String())
	}
	return nil
}

func checkAdvertised(u url.URL) error {
	if isUnix(u) {
		return nil
	}
	host, _, err := net.SplitHostPort(u.Host)
	if err == nil && host == "" {
		err = fmt.Errorf("unexpected empty host (%s)", u.String())
	}
	return err
}

var errBootstrapConflict = errors.New("multiple discovery or bootstrap flags are set. " +
	`Choose one of "initial-cluster", "discovery-endpoints" or "discovery-srv"`)

func (c *Config) checkCluster() error {
	v := &c.discovery
	ways := 0
	for _, used := range []bool{c.initialCluster != "", v.srv != "", len(v.endpoints) > 0} {
		if used {
			ways++
		}
	}
	switch {
	case ways > 1:
		return errBootstrapConflict
	case (v.token != "") != (len(v.endpoints) > 0):
		return errors.New("both --discovery-token and --discovery-endpoints must be set")
	case c.fallback == "proxy":
		return errors.New(`v2 proxy is deprecated, and --discovery-fallback can't be configured as "proxy"`)
	case len(v.endpoints) > 0:
		return errors.New("--discovery-endpoints: stoa doesn't do discovery; name the members in --initial-cluster")
	case v.srv != "" || v.srvName != "":
		return errors.New("--discovery-srv: stoa doesn't do DNS discovery; name the members in --initial-cluster")
	}
	return nil
}

const maxElectionTimeout = 50 * time.Second

func (c *Config) checkTimes() error {
	heart, election := c.HeartbeatInterval, c.ElectionTimeout
	switch {
	case heart == 0:
		return errors.New("--heartbeat-interval must be >0 (set to 0ms)")
	case election == 0:
		return errors.New("--election-timeout must be >0 (set to 0ms)")
	case 5*heart > election:
		return fmt.Errorf("--election-timeout[%vms] should be at least as 5 times as --heartbeat-interval[%vms]", election.Milliseconds(), heart.Milliseconds())
	case election > maxElectionTimeout:
		return fmt.Errorf("--election-timeout[%vms] is too long, and should be set less than %vms", election.Milliseconds(), maxElectionTimeout.Milliseconds())
	case c.ListenClientURLs != nil && c.AdvertiseClientURLs == nil:
		return errors.New("--advertise-client-urls is required when --listen-client-urls is set explicitly")
	}
	return nil
}

// finishCompaction reads a bare number as hours or revisions, anything else as
// a duration, as etcd does.
func (c *Config) finishCompaction() error {
	a := &c.AutoCompaction
	a.Mode = c.compactionMode
	switch a.Mode {
	case "periodic", "revision":
	case "":
		return errors.New("undefined --auto-compaction-mode")
	default:
		return fmt.Errorf("unknown --auto-compaction-mode %q", a.Mode)
	}
	if c.retention == "" {
		return nil
	}
	n, err := strconv.Atoi(c.retention)
	if err == nil && n >= 0 {
		if a.Mode == "revision" {
			a.Revisions = int64(n)
		} else {
			a.Period = time.Duration(min(n, int(longest/time.Hour))) * time.Hour
		}
		return nil
	}
	period, err := time.ParseDuration(c.retention)
	switch {
	case err != nil:
		return fmt.Errorf("--auto-compaction-retention: %w", err)
	case period < 0:
		return fmt.Errorf("--auto-compaction-retention %q is negative", c.retention)
	case a.Mode == "revision":
		return fmt.Errorf("--auto-compaction-retention %q is a duration, but --auto-compaction-mode revision wants a number of revisions", c.retention)
	}
	a.Period = min(period, longest)
	return nil
}

// longest is what any time is taken for that is meant to be without an end: more wouldn't fit into a duration, or not into
// a sum of them.
const longest = 100 * 365 * 24 * time.Hour

func (c *Config) finishTLS() error {
	lowest, err := tlsutil.GetTLSVersion(c.tlsMin)
	if err != nil {
		return fmt.Errorf("--tls-min-version: %w", err)
	}
	highest, err := tlsutil.GetTLSVersion(c.tlsMax)
	if err != nil {
		return fmt.Errorf("--tls-max-version: %w", err)
	}
	if highest != 0 && lowest > highest {
		return fmt.Errorf("--tls-min-version: min version (%s) is greater than max version (%s)", c.tlsMin, c.tlsMax)
	}
	var suites []uint16
	if len(c.cipherSuites) > 0 && !slices.Equal(c.cipherSuites, []string{""}) {
		if lowest == tls.VersionTLS13 {
			return errors.New("--cipher-suites: cipher suites cannot be configured when only TLS1.3 is enabled")
		}
		if suites, err = tlsutil.GetCipherSuites(c.cipherSuites); err != nil {
			return fmt.Errorf("--cipher-suites: %w", err)
		}
	}
	for _, t := range []*transport.TLSInfo{&c.ClientTLS, &c.PeerTLS} {
		t.MinVersion, t.MaxVersion, t.CipherSuites = lowest, highest, suites
		t.AllowedHostnames = slices.DeleteFunc(t.AllowedHostnames, func(s string) bool { return s == "" })
		t.AllowedCNs = slices.DeleteFunc(t.AllowedCNs, func(s string) bool { return s == "" })
	}
	if c.CertYears == 0 {
		c.CertYears = 1
	}
	c.CertYears = min(c.CertYears, uint(longest/(365*24*time.Hour)))
	return nil
}

func (c *Config) finishPartitions() error {
	if c.Partitions < 0 || c.Partitions > MaxPartitions {
		return fmt.Errorf("--partitions %d: want 1 to %d", c.Partitions, MaxPartitions)
	}
	if c.Partitions == 0 {
		c.Partitions = DefaultPartitions
	}
	return nil
}

// checkTracing has etcd's texts, and like etcd looks only at what is enabled.
func (c *Config) checkTracing() error {
	switch t := c.Tracing; {
	case !t.Enable:
	case t.PerMillion < 0:
		return errors.New("--distributed-tracing-sampling-rate: tracing sampling rate must be positive")
	case t.PerMillion > 1_000_000:
		return errors.New("--distributed-tracing-sampling-rate: tracing sampling rate must be less than 1000000")
	}
	return nil
}

// checkUI refuses to show the keys to clients that the client port doesn't let in.
func (c *Config) checkUI() error {
	if !c.EnableUI {
		return nil
	}
	if len(c.ListenMetricsURLs) == 0 {
		return errors.New("--enable-ui: the page is served on the metrics port; set --listen-metrics-urls")
	}
	for _, u := range c.ListenMetricsURLs {
		if u.Scheme == "http" && (c.ClientTLS.ClientCertAuth || c.ClientTLS.TrustedCAFile != "") {
			return fmt.Errorf("--enable-ui: with --client-cert-auth or --trusted-ca-file, --listen-metrics-urls %s must be https: the page would show the keys to clients without a certificate", u.String())
		}
	}
	return nil
}

func (c *Config) checkLimits() error {
	if !utf8.ValidString(c.Name) {
		return fmt.Errorf("--name %q is not UTF-8: give another; with --data-dir %q a member that has data keeps it, and is known by the new name", c.Name, c.dataDir())
	}
	switch {
	case c.QuotaBackendBytes == 0:
		c.QuotaBackendBytes = DefaultQuotaBytes
	case c.QuotaBackendBytes < 0:
		c.QuotaBackendBytes = 0
	}
	c.AuthTokenTTL = min(c.AuthTokenTTL, uint(longest/time.Second))
	if c.MaxRequestBytes == 0 || c.MaxRequestBytes > 1<<31-1-grpcOverhead {
		return fmt.Errorf("--max-request-bytes %d: want 1 to %d", c.MaxRequestBytes, 1<<31-1-grpcOverhead)
	}
	if m := c.MemoryLimit; m > 0 && m < MinMemoryLimit {
		return fmt.Errorf("--memory-limit %d: want bytes, at least %d", m, int64(MinMemoryLimit))
	}
	if f := c.freelist; f != "" && f != "array" && f != "map" {
		return fmt.Errorf("--backend-bbolt-freelist-type %q: want array or map", f)
	}
	return nil
}

// MinMemoryLimit is what an idle server can be told to make do with, in bytes.
const MinMemoryLimit = 128 << 20

// grpcOverhead is what a request may be larger on the wire than the limit.
const grpcOverhead = 512 * 1024
