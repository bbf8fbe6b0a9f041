package config

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
)

// acceptedOnly declares what etcd has and stoa has no use for. The values are
// parsed into variables that nobody reads, so that a mistake in them is found
// all the same.
func (d *declaration) acceptedOnly() {
	first := len(d.settings)
	d.group = "Known from etcd, without effect here"
	num(d, "max-snapshots", new(uint), 5, "A server has one snapshot, its backend file.")
	num(d, "max-wals", new(uint), 5, "Log segments are deleted when nobody needs them.")
	num(d, "backend-batch-limit", new(int), 0, "The backend is flushed by time.")
	d.duration("raft-read-timeout", new(time.Duration), 5*time.Second, "Peer streams are watched by gRPC keepalives.").flagOnly()
	d.duration("raft-write-timeout", new(time.Duration), 5*time.Second, "Peer streams are watched by gRPC keepalives.").flagOnly()
	d.bool("enable-grpc-gateway", new(bool), true, "There is no JSON gateway.")
	d.duration("corrupt-check-time", new(time.Duration), 0, "State hashes are compared on demand.")
	d.duration("compact-hash-check-time", new(time.Duration), time.Minute, "State hashes are compared on demand.")
	num(d, "compaction-batch-limit", new(int), 0, "Compaction goes on in small steps.")
	d.duration("compaction-sleep-interval", new(time.Duration), 0, "Compaction goes on in small steps.")
	d.duration("downgrade-check-time", new(time.Duration), 5*time.Second, "There is nothing to downgrade to.")
	d.bool("memory-mlock", new(bool), false, "Reads don't touch the backend's pages.")
	num(d, "bootstrap-defrag-threshold-megabytes", new(uint), 0, "Defragment on demand.")
	d.bool("enable-distributed-tracing", new(bool), false, "There is no tracing.")
	d.text("distributed-tracing-address", new(string), "localhost:4317", "There is no tracing.")
	d.text("distributed-tracing-service-name", new(string), "etcd", "There is no tracing.")
	d.text("distributed-tracing-instance-id", new(string), "", "There is no tracing.")
	num(d, "distributed-tracing-sampling-rate", new(int), 0, "There is no tracing.")
	d.text("feature-gates", &d.cfg.featureGates, "", "Gate=true|false,...: etcd's gates are checked by name.")
	d.choice("v2-deprecation", new(string), "There is no v2 store.", "write-only", "write-only-skip-check", "write-only-drop-data", "gone")
	for _, s := range d.settings[first:] {
		s.unused = true
	}
	d.refused()
	d.longIgnored()
}

// refused declares what must not be ignored and isn't there: finish stops when
// one of them is asked for.
func (d *declaration) refused() {
	c, v := d.cfg, &d.cfg.discovery
	first := len(d.settings)
	d.section = "discovery-config"
	d.set("discovery-endpoints", &v.endpoints, "", "").in("endpoints")
	d.text("discovery-token", &v.token, "", "").in("token")
	d.duration("discovery-dial-timeout", &v.dial, 2*time.Second, "").in("dial-timeout")
	d.duration("discovery-request-timeout", &v.request, 5*time.Second, "").in("request-timeout")
	d.duration("discovery-keepalive-time", &v.keepAlive, 2*time.Second, "").in("keepalive-time")
	d.duration("discovery-keepalive-timeout", &v.keepAliveLimit, 6*time.Second, "").in("keepalive-timeout")
	d.bool("discovery-insecure-transport", &v.insecure, true, "").flagOnly()
	d.bool("discovery-insecure-skip-tls-verify", &v.noTLS, false, "").flagOnly()
	d.text("discovery-cert", &v.cert, "", "").flagOnly()
	d.text("discovery-key", &v.key, "", "").flagOnly()
	d.text("discovery-cacert", &v.ca, "", "").flagOnly()
	d.text("discovery-user", &v.user, "", "").flagOnly()
	d.text("discovery-password", &v.password, "", "").flagOnly()
	d.section = ""
	d.text("discovery-srv", &v.srv, "", "")
	d.text("discovery-srv-name", &v.srvName, "", "")
	d.choice("discovery-fallback", &c.fallback, "", "exit", "proxy").flagOnly()
	d.bool("force-new-cluster", &c.forceNewCluster, false, "")
	for _, s := range d.settings[first:] {
		s.hidden = true
	}
}

// longIgnored declares the names that etcd itself takes and drops.
func (d *declaration) longIgnored() {
	for _, name := range []string{
		"cluster-active-size", "cluster-remove-delay", "cluster-sync-interval", "config", "force",
		"max-result-buffer", "max-retry-attempts", "peer-heartbeat-interval", "peer-election-timeout",
		"retry-interval", "snapshot", "v", "vv", "test.coverprofile", "test.outputdir",
	} {
		s := d.add(name, nothing{}, "").flagOnly()
		s.hidden, s.unused = true, true
	}
}

// featureGates are the names that etcd 3.7 knows.
var featureGates = []string{
	"AllAlpha", "AllBeta", "CompactHashCheck", "FastLeaseKeepAlive", "InitialCorruptCheck", "LeaseCheckpoint",
	"LeaseCheckpointPersist", "PriorityRequest", "SetMemberLocalAddr", "StopGRPCServiceOnDefrag", "TxnModeWriteWithSharedBuffer",
}

// origins is the value of --cors: URLs, or * for all.
type origins struct{ p *[]string }

func (v origins) Set(s string) error {
	if s == "" || s == "*" {
		*v.p = []string{"*"}
		return nil
	}
	parsed, err := types.NewURLs(strings.Split(s, ","))
	if err != nil {
		return err
	}
	*v.p = slices.Compact(parsed.StringSlice())
	return nil
}
func (v origins) String() string { return list(v).String() }
func (v origins) setYAML(raw json.RawMessage) error {
	s, err := scalar(raw)
	if err != nil {
		return err
	}
	return v.Set(s)
}
