package recovery

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/raftlog"
	"github.com/stoa-kv/stoa/internal/store"
)

// life is stores beside their file.
type life struct {
	t      *rapid.T
	file   *backend.Backend
	groups *membership.Groups
	placed *placement.Map
	stores []*store.Store
	rev    int64
}

func (l *life) flush(sys backend.System) {
	cut := &backend.Cut{System: sys}
	for _, s := range l.stores {
		cut.Partitions = append(cut.Partitions, s.Cut())
	}
	require.NoError(l.t, l.file.Flush(cut))
	for p, s := range l.stores {
		s.Release(cut.Partitions[p])
	}
}

// work changes keys, compacts and flushes at random.
func (l *life) work() {
	for range rapid.IntRange(0, 40).Draw(l.t, "steps") {
		key := fmt.Appendf(nil, "/d%d/e/k%d", rapid.IntRange(0, 8).Draw(l.t, "dir"), rapid.IntRange(0, 2).Draw(l.t, "key"))
		s := l.stores[l.placed.Partition(key)]
		l.rev++
		switch rapid.IntRange(0, 9).Draw(l.t, "what") {
		case 0, 1:
			s.Delete(store.Revision{Main: l.rev}, key)
		case 2:
			l.flush(backend.System{})
		case 3:
			for _, s := range l.stores {
				s.Compact(l.rev - 2)
			}
		default:
			s.Put(store.Revision{Main: l.rev}, key, []byte("v"), int64(rapid.IntRange(0, 2).Draw(l.t, "lease")))
		}
	}
	for _, s := range l.stores {
		index, _ := s.Applied()
		s.SetApplied(index+1, 2)
	}
}

// resize goes on with other partitions, by the file and in memory.
func (l *life) resize(next *placement.Map) {
	var sys backend.System
	CutPlacement(&sys, nil, next)
	CutGroups(&sys, l.groups, l.groups.Ending(next.Partitions()))
	l.flush(sys)
	require.NoError(l.t, Resize(l.file))
	meta, err := l.file.Meta()
	require.NoError(l.t, err)
	l.stores = InheritStores(&meta, l.stores, l.placed, next)
	l.placed = next
	l.groups, err = ReadGroups(&meta)
	require.NoError(l.t, err)
}

// show is all that clients can see of stores, and what replicas must have in common.
func show(stores []*store.Store) (lines []string) {
	var sums store.Sums
	for p, s := range stores {
		index, term := s.Applied()
		lines = append(lines, fmt.Sprintf("%d: revision %d, index %d, term %d, compacted %d, keys %d, bytes %d", p, s.Rev(), index, term, s.Compacted(), s.Keys(), s.Bytes()))
		s.Sizes([]byte{0}, []byte{0}, func(key []byte, _ int) {
			lines = append(lines, fmt.Sprintf("%s %x", key, s.Get(key).Wire()))
		})
		for lease := range int64(3) {
			lines = append(lines, fmt.Sprintf("lease %d: %q", lease, s.LeaseKeys(lease)))
		}
		part := s.Sums()
		sums.Add(&part)
	}
	return append(lines, fmt.Sprint(sums))
}

// What a generation inherits in memory is what a restart would load from the file: again and again,
// also when keys have still to move, and however far compactions are. In the end the file has nothing
// that is dead, and lacks nothing.
func TestInheritedIsWhatTheFileHas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "partitions")
		l := &life{t: t, groups: membership.FirstGroups(n), placed: placement.New(n), rev: 1}
		l.file = backend.NewMem(backend.Identity{Cluster: 7, Server: 1, Partitions: n})
		for range n {
			s := store.New(l.file)
			s.SetApplied(raftlog.Bootstrap.Index, raftlog.Bootstrap.Term)
			l.stores = append(l.stores, s)
		}
		for range rapid.IntRange(1, 4).Draw(t, "generations") {
			l.work()
			to := rapid.IntRange(1, 5).Draw(t, "to")
			next := l.placed.Resized(to)
			switch {
			case to == l.placed.Partitions():
				continue
			case to > l.placed.Partitions():
				next = l.placed.Over(to).Towards(next)
			case rapid.Bool().Draw(t, "drained"):
				drained := next.Over(l.placed.Partitions())
				store.Move(l.stores, nil, []byte{0}, store.Route{To: drained.Run}, nil)
				l.placed = drained
			}
			l.resize(next)
			meta, err := l.file.Meta()
			require.NoError(t, err)
			loaded, _, err := Load(l.file, &meta, l.placed, false, nil)
			require.NoError(t, err)
			require.Equal(t, show(loaded), show(l.stores))
			if move := l.placed.Transit(); move != nil {
				store.Move(l.stores, nil, []byte{0}, store.Route{To: move.To.Run}, nil)
				l.placed = move.To
			}
		}
		l.work()
		l.settle()
	})
}

// settle carries out all compactions, and compares what is left of history with what is needed.
func (l *life) settle() {
	l.rev++ // a tombstone at the revision of the compaction stays
	last := []byte("last")
	l.stores[l.placed.Partition(last)].Put(store.Revision{Main: l.rev}, last, nil, 0)
	for _, s := range l.stores {
		s.Compact(l.rev)
	}
	for range 100 {
		l.flush(backend.System{})
	}
	meta, err := l.file.Meta()
	require.NoError(l.t, err)
	require.Equal(l.t, l.rev, meta.Finished)
	records := 0
	require.NoError(l.t, l.file.Scan(0, l.rev, func(rev store.Revision, kv kvwire.KeyValue, tombstone bool) bool {
		records++
		now := l.stores[l.placed.Partition(kv.Key())].Get(kv.Key())
		require.False(l.t, tombstone, "%q", kv.Key())
		require.Equal(l.t, rev.Main, now.ModRevision(), "%q", kv.Key())
		return true
	}))
	keys := 0
	for _, s := range l.stores {
		keys += s.Keys()
	}
	require.Equal(l.t, keys, records)
}
