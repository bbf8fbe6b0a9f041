package sim

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The version goes up and down beside all troubles, also of changes of members, and all servers
// agree on it.
func TestVersions(t *testing.T) {
	changes := 0
	for i := range *runs / 2 {
		o := options(t, *seed+uint64(i))
		o.Versions = true
		r := Run(o)
		if r.Failure != nil {
			t.Error(r.Failure)
		}
		changes += r.Stats.VersionChanges
	}
	require.Greater(t, changes, *runs, "hardly any change took effect")
}

// A server that begins each life at the oldest version is noticed.
func TestAForgottenVersionIsNoticed(t *testing.T) {
	for s := range uint64(20) {
		if Run(Options{Seed: s, Versions: true, Mutation: Mutation{Name: "forget-version", ForgetVersion: true}}).Failure != nil {
			return
		}
	}
	t.Error("nothing is noticed in 20 seeds")
}
