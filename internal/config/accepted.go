package config

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
)

// acceptedOnly declares etcd's settings for which stoa has no use. The values
// are parsed into unused variables, so that errors in them are reported
// nevertheless.
func (d *declaration) acceptedOnly() {
	d.group = "Known from etcd, without effect here"
	const byHand = "members' present states are compared, as often as --corrupt-check-time says"
	const streams = "streams between members are watched by pulses"
	const steps = "compactions are always carried out in small steps"
	d.knob(num(d, "max-snapshots", new(uint), 5, ""), "a server has one snapshot, its state file")
	d.knob(num(d, "max-wals", new(uint), 5, ""), "log segments are removed as soon as they are not needed")
	d.knob(num(d, "backend-batch-limit", new(int), 0, ""), "the state file is written by time alone")
	d.knob(d.duration("raft-read-timeout", new(time.Duration), 5*time.Second, "").flagOnly(), streams)
	d.knob(d.duration("raft-write-timeout", new(time.Duration), 5*time.Second, "").flagOnly(), streams)
	d.knob(d.duration("compact-hash-check-time", new(time.Duration), time.Minute, ""), byHand)
	d.knob(num(d, "compaction-batch-limit", new(int), 0, ""), steps)
	d.knob(d.duration("compaction-sleep-interval", new(time.Duration), 0, ""), steps)
	d.knob(d.duration("downgrade-check-time", new(time.Duration), 5*time.Second, ""), "whether a downgrade is over is looked at every second")
	d.knob(d.bool("memory-mlock", new(bool), false, ""), "memory is not locked, and may be swapped out")
	d.knob(d.choice("v2-deprecation", new(string), "", "write-only", "write-only-skip-check", "write-only-drop-data", "gone"),
		"there is no v2 store", "write-only", "write-only-skip-check", "write-only-drop-data", "gone")
	d.text("feature-gates", &d.cfg.featureGates, "", "Gate=true|false,...: etcd's gates are known by name; a warning says which are not obeyed.")
	d.refused()
	d.longIgnored()
}

// knob declares a setting that is there for the sake of etcd's command lines alone.
func (d *declaration) knob(s *setting, missing string, harmless ...string) {
	s.usage = strings.ToUpper(missing[:1]) + missing[1:] + "."
	s.noEffect(missing, harmless...)
}

// refused declares unimplemented settings that must not be ignored: finish
// stops when one of them is asked for.
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
		d.add(name, nothing{}, "").flagOnly().noEffect("etcd ignores it, too", "never").hidden = true
	}
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
