package bootstrap

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

var three = []Member{{1, "s1", []string{"http://1"}}, {2, "s2", []string{"http://2"}}, {3, "s3", []string{"http://3"}}}

const plainCluster = ID(7)

// member starts a server on a new directory: restored with a state, or empty if that is 0.
func startWith(t testing.TB, m Member, state ID) *Registry {
	t.Helper()
	dir := t.TempDir()
	self := Self{Cluster: plainCluster, Member: m.ID, Name: m.Name, Members: three, Partitions: 2,
		InitialCluster: "s1=http://1,s2=http://2,s3=http://3", Token: "t"}
	if state != 0 {
		self.Cluster = RestoredCluster(plainCluster, state)
		require.NoError(t, Restored(dir, self, state))
		require.ErrorContains(t, Restored(dir, self, state), "exists already")
	}
	r, err := Open(dir, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	if rec, restored := r.Restored(); restored {
		require.Equal(t, self, rec.Self(), "without the flags")
		self = rec.Self()
	} else {
		require.Zero(t, state)
	}
	require.NoError(t, r.Begin(self))
	return r
}

// introduce lets one introduce itself to another.
func introduce(t *testing.T, from, to *Registry) error {
	t.Helper()
	a, err := to.Introduce(from.own(to.self.Member))
	require.NoError(t, err)
	return from.learn(Member{ID: to.self.Member, Name: to.self.Name}, a)
}

func isIn(t *testing.T, r *Registry) bool {
	t.Helper()
	_, ok, err := r.admit()
	require.NoError(t, err)
	return ok
}

// Members that are restored alike begin a cluster as empty ones do.
func TestRestoredMembersBeginACluster(t *testing.T) {
	a, b, c := startWith(t, three[0], 5), startWith(t, three[1], 5), startWith(t, three[2], 5)
	require.False(t, isIn(t, a))
	require.NoError(t, introduce(t, a, b))
	require.NoError(t, introduce(t, b, a))
	require.True(t, isIn(t, a))
	require.True(t, isIn(t, b))
	_, still := a.Restored()
	require.False(t, still)
	rec, in := a.Record()
	require.True(t, in)
	require.False(t, rec.Begun, "it has no log yet")
	require.Equal(t, ID(5), rec.State)

	// Late.
	require.NoError(t, introduce(t, c, a))
	require.NoError(t, introduce(t, c, b))
	require.True(t, isIn(t, c))

	// Restored once more, it has forgotten what it acknowledged.
	again := startWith(t, three[2], 5)
	var refused *never
	require.ErrorAs(t, introduce(t, again, a), &refused)
	require.ErrorContains(t, refused, "has already been bootstrapped")
}

// A member that is empty, or was restored differently, never takes part in the cluster of
// the others, before they are admitted and after.
func TestAnotherStateIsAnotherCluster(t *testing.T) {
	for name, state := range map[string]ID{"empty": 0, "another": 6} {
		t.Run(name, func(t *testing.T) {
			a, b, other := startWith(t, three[0], 5), startWith(t, three[1], 5), startWith(t, three[2], state)
			for _, r := range []*Registry{a, b} {
				require.ErrorContains(t, introduce(t, other, r), "one was restored from a snapshot")
				require.ErrorContains(t, introduce(t, r, other), "one was restored from a snapshot")
			}
			require.False(t, isIn(t, a))
			require.False(t, isIn(t, other))
			require.Empty(t, other.rec.Peers)
			require.NoError(t, introduce(t, a, b))
			require.NoError(t, introduce(t, b, a))
			require.True(t, isIn(t, a))
			require.True(t, isIn(t, b))
			var refused *never
			err := introduce(t, other, a)
			require.ErrorAs(t, err, &refused)
			require.ErrorContains(t, err, "is of another cluster")
			require.ErrorContains(t, err, "one was restored from a snapshot")
			require.False(t, isIn(t, other))

			// Started again, the others don't know their flags any more.
			a.self = Self{}
			err = introduce(t, other, a)
			require.ErrorAs(t, err, &refused)
			require.ErrorContains(t, err, "snapshot")
		})
	}
}

func TestRestoredClusterIsNeverThePlainOne(t *testing.T) {
	seen := map[ID]bool{plainCluster: true}
	for state := range ID(1000) {
		id := RestoredCluster(plainCluster, state)
		require.False(t, seen[id])
		seen[id] = true
	}
}
