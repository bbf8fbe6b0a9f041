package operator

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/test/process"
)

// randomFile makes a state file with a random history.
func randomFile(t *testing.T, seed uint64) (path string) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	path = filepath.Join(t.TempDir(), fmt.Sprint("db", seed))
	b, err := backend.Open(path, backend.Options{Identity: backend.Identity{Cluster: 1, Server: 2, Partitions: 1}, NoSync: true, Quota: int64(rng.IntN(2)) << 20})
	require.NoError(t, err)
	s := store.New(b)
	rev := int64(1)
	for range rng.IntN(4) {
		for range rng.IntN(300) {
			rev += 1 + int64(rng.IntN(3))
			key := fmt.Appendf(nil, "/k%d", rng.IntN(80))
			if rng.IntN(4) == 0 {
				s.Delete(store.Revision{Main: rev}, key)
				continue
			}
			s.Put(store.Revision{Main: rev}, key, make([]byte, rng.IntN(3000)), int64(rng.IntN(2)))
		}
		if rng.IntN(3) == 0 && rev > 1 {
			s.Compact(rev - int64(rng.IntN(int(rev))))
		}
		cut := &backend.Cut{Partitions: []store.Cut{s.Cut()}, System: backend.System{
			Leases: []backend.Lease{{ID: int64(rng.Uint32()) + 1, TTL: 60}}, Members: []backend.Member{{ID: 2, Name: "m"}},
		}}
		require.NoError(t, b.Flush(cut))
		s.Release(cut.Partitions[0])
	}
	require.NoError(t, b.Close())
	return path
}

// stoactl's description of a file is etcdutl's, in every form.
func TestStatusIsEtcdutls(t *testing.T) {
	requireStoa(t)
	etcdutl, err := process.Peer("etcdutl")
	require.NoError(t, err)
	stoactl, err := process.Stoactl()
	require.NoError(t, err)
	forms := []string{"simple", "json", "fields", "table"}
	for seed := range uint64(100) {
		args := []string{"snapshot", "status", randomFile(t, seed), "-w", forms[seed%uint64(len(forms))]}
		want, err := exec.Command(etcdutl, args...).Output()
		require.NoError(t, err, "seed %d", seed)
		got, err := exec.Command(stoactl, args...).Output()
		require.NoError(t, err, "seed %d", seed)
		require.Equal(t, string(want), string(got), "seed %d", seed)
	}
}
