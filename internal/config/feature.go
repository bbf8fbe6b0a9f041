package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Feature is one of etcd's feature gates.
type Feature struct {
	Name, Stage string // Stage is ALPHA or BETA, as in etcd
	// On tells whether the server does what the gate stands for.
	On      bool
	missing string // what is not done, or, if On, what is always done; empty: the gate decides, or stands for others
}

const initialCorruptCheck = "InitialCorruptCheck"

// features are the gates of etcd 3.7, sorted by name.
var features = []Feature{
	{"AllAlpha", "ALPHA", false, ""},
	{"AllBeta", "BETA", false, ""},
	{"CompactHashCheck", "ALPHA", false, "the members' histories are not compared after compactions, their present states are, as often as --corrupt-check-time says"},
	{"FastLeaseKeepAlive", "BETA", false, "a lease is renewed by a leader that has confirmed that it leads"},
	{initialCorruptCheck, "ALPHA", false, ""},
	{"LeaseCheckpoint", "ALPHA", true, "the remaining time of leases is always checkpointed"},
	{"LeaseCheckpointPersist", "ALPHA", true, "checkpoints of leases are always stored"},
	{"PriorityRequest", "ALPHA", false, "no request has priority over others"},
	{"SetMemberLocalAddr", "ALPHA", false, "the operating system chooses the address from which peers are called"},
	{"StopGRPCServiceOnDefrag", "ALPHA", false, "clients are served during a defragmentation"},
	{"TxnModeWriteWithSharedBuffer", "BETA", false, "transactions don't read through a buffer"},
}

// readFeatureGates follows the gates, and notes those that ask for something else than the server does.
func (d *declaration) readFeatureGates() error {
	asked := map[string]bool{}
	for _, gate := range strings.Split(d.cfg.featureGates, ",") {
		name, v, ok := strings.Cut(strings.TrimSpace(gate), "=")
		if name = strings.TrimSpace(name); name == "" && !ok {
			continue
		}
		if !ok {
			return fmt.Errorf("--feature-gates: missing bool value for %s", name)
		}
		on, err := strconv.ParseBool(strings.TrimSpace(v))
		if err != nil {
			return fmt.Errorf("--feature-gates: invalid value of %s=%s", name, v)
		}
		if !slices.ContainsFunc(features, func(f Feature) bool { return f.Name == name }) {
			return fmt.Errorf("--feature-gates: unrecognized feature gate: %s", name)
		}
		asked[name] = on
	}
	d.cfg.Features = slices.Clone(features)
	for i, f := range features {
		all := asked["AllAlpha"] && f.Stage == "ALPHA" || asked["AllBeta"] && f.Stage == "BETA"
		on, ok := asked[f.Name]
		if !ok {
			on, ok = true, all
		}
		switch {
		case !ok || on == f.On:
		case f.Name == initialCorruptCheck:
			d.cfg.InitialCorruptCheck, d.cfg.Features[i].On = on, on
		case f.missing != "":
			d.note(true, "--feature-gates: "+f.missing, f.Name, strconv.FormatBool(on))
		}
	}
	return nil
}
