package compose

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestMergerHoldsBack(t *testing.T) {
	var m merger
	eu, us := m.add(0, 0), m.add(1, 0)
	m.bring(us, item{revision: 4}) // of before: free
	require.Len(t, m.take(), 1)
	// The client has seen eu up to 7, and is about to write to us, whose latest it knows
	// is 4.
	m.depend(dependency{cluster: 1, from: 5, needs: []int64{7, 0}})
	m.bring(us, item{revision: 5})
	require.Empty(t, m.take())
	require.Equal(t, []int{0}, m.lacking())
	m.bring(eu, item{revision: 6})
	require.Len(t, m.take(), 1, "eu's own is free")
	m.bring(eu, item{revision: 8, progress: true})
	out := m.take()
	require.Len(t, out, 2)
	require.Same(t, us, out[1].lane)
	require.Empty(t, m.deps)
	require.Empty(t, m.lacking())
}

// A watch that ends releases its events, and holds no other back any more.
func TestMergerReleases(t *testing.T) {
	var m merger
	eu, us := m.add(0, 0), m.add(1, 0)
	m.depend(dependency{cluster: 1, from: 1, needs: []int64{7, 0}})
	m.bring(us, item{revision: 5})
	require.Empty(t, m.take())
	m.bring(eu, item{revision: atEnd})
	m.end(eu)
	require.Len(t, m.take(), 2)
	require.Equal(t, []*lane{us}, m.lanes)
}

// TestMergerDrawn has a client and others write to three clusters, whose events
// arrive in any interleaving. The client's own writes are released in the order
// in which they were made, each after all that the client had seen of other
// clusters; and everything is released in the end.
func TestMergerDrawn(t *testing.T) {
	const clusters = 3
	type event struct {
		cluster int
		rev     int64
		own     int // 0: another client's; else its place in the client's order
		needs   []int64
	}
	rapid.Check(t, func(t *rapid.T) {
		revs := make([]int64, clusters) // the clusters'
		seen := make([]int64, clusters) // the client's
		var logs [clusters][]event
		var deps []dependency
		at, led, own := -1, false, 0
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			c := rapid.IntRange(0, clusters-1).Draw(t, "cluster")
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0: // another client writes
				revs[c]++
				logs[c] = append(logs[c], event{cluster: c, rev: revs[c]})
				continue
			case 1: // the client reads what is there, or something of before
				seen[c] = max(seen[c], revs[c]-rapid.Int64Range(0, 2).Draw(t, "stale"))
				if at != c {
					at, led = c, false
				}
				continue
			}
			if at != c {
				at, led = c, false
			}
			if !led {
				led = true
				d := dependency{cluster: c, from: seen[c] + 1, needs: slices.Clone(seen)}
				d.needs[c] = 0
				deps = append(deps, d)
			}
			own++
			revs[c]++
			logs[c] = append(logs[c], event{cluster: c, rev: revs[c], own: own, needs: slices.Clone(seen)})
			seen[c] = revs[c]
		}

		var m merger
		var lanes [clusters]*lane
		for i := range lanes {
			lanes[i] = m.add(i, 0)
		}
		for _, d := range deps {
			m.depend(d)
		}
		var out []event
		take := func() {
			for _, it := range m.take() {
				if !it.progress {
					out = append(out, logs[it.lane.cluster][it.what.Revision])
				}
			}
		}
		next := [clusters]int{}
		left := len(logs[0]) + len(logs[1]) + len(logs[2])
		for brought := 0; brought < left; {
			c := rapid.IntRange(0, clusters-1).Draw(t, "brings")
			if next[c] == len(logs[c]) {
				continue
			}
			m.bring(lanes[c], item{revision: logs[c][next[c]].rev, what: Notification{Revision: int64(next[c]), Events: []*clientv3.Event{}}})
			next[c]++
			brought++
			take()
		}
		for i, l := range lanes {
			m.bring(l, item{revision: revs[i], progress: true})
		}
		take()
		require.Len(t, out, left, "nothing is held back for ever")
		place := 0
		past := make([]int64, clusters)
		for _, e := range out {
			require.Equal(t, past[e.cluster]+1, e.rev, "each cluster's events in their order")
			past[e.cluster] = e.rev
			if e.own == 0 {
				continue
			}
			require.Greater(t, e.own, place, "the client's order")
			place = e.own
			for c, need := range e.needs {
				if c != e.cluster {
					require.GreaterOrEqual(t, past[c], need, "what the client had seen comes first")
				}
			}
		}
	})
}

// TestMergerGoesOn has a client read and write in turns in several clusters,
// where others write too, mostly to keys that are not watched. Watches send
// progress only on request. All events are released, in the order that the
// client's requests demand.
func TestMergerGoesOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clusters := rapid.IntRange(2, 3).Draw(t, "clusters")
		m, revs, seen := new(merger), make([]int64, clusters), make([]int64, clusters)
		var lanes []*lane
		for c := range clusters {
			for range rapid.IntRange(1, 2).Draw(t, "watches") {
				lanes = append(lanes, m.add(c, 0))
			}
		}
		type event struct {
			lane     *lane
			revision int64
		}
		var under []event // not delivered yet, in the order in which they happened
		var deps []dependency
		var out []item
		var known []int // dependencies when each of them came out
		brought := map[*lane]int{}
		change := func(c int) {
			revs[c]++
			if l := rapid.SampledFrom(lanes).Draw(t, "key of"); l.cluster == c && rapid.IntRange(0, 2).Draw(t, "watched") == 0 {
				under = append(under, event{l, revs[c]})
			}
		}
		bring := func(i int) { // and all before it of the same watch
			l := under[i].lane
			var kept []event
			for j, e := range under {
				if j <= i && e.lane == l {
					m.bring(l, item{revision: e.revision})
					brought[l]++
				} else {
					kept = append(kept, e)
				}
			}
			under = kept
		}
		progress := func() (asked bool) {
			for _, c := range m.lacking() {
				asked = true
				for i := len(under) - 1; i >= 0; i-- {
					if i < len(under) && under[i].lane.cluster == c {
						bring(i)
					}
				}
				for _, l := range lanes {
					if l.cluster == c {
						m.bring(l, item{revision: revs[c], progress: true, quiet: true})
					}
				}
			}
			return asked
		}
		take := func() {
			for _, it := range m.take() {
				out, known = append(out, it), append(known, len(deps))
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			c := rapid.IntRange(0, clusters-1).Draw(t, "cluster")
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1: // another client writes
				change(c)
			case 2: // the client writes
				d := dependency{cluster: c, from: seen[c] + 1, needs: slices.Clone(seen)}
				d.needs[c] = 0
				m.depend(d)
				deps = append(deps, d)
				change(c)
				seen[c] = revs[c]
			case 3:
				if len(under) > 0 {
					bring(rapid.IntRange(0, len(under)-1).Draw(t, "brings"))
				}
			case 4:
				progress()
			}
			take()
		}
		for len(under) > 0 {
			bring(0)
			take()
		}
		for range 100 {
			if !progress() {
				break
			}
			take()
		}
		given, past := map[*lane]int{}, map[*lane]int64{}
		for i, it := range out {
			require.GreaterOrEqual(t, it.revision, past[it.lane])
			past[it.lane] = it.revision
			if !it.progress {
				given[it.lane]++
			}
			for _, d := range deps[:known[i]] {
				if d.cluster != it.lane.cluster || it.revision < d.from {
					continue
				}
				for _, later := range out[i+1:] {
					require.False(t, !later.progress && later.lane.cluster != d.cluster && later.revision <= d.needs[later.lane.cluster],
						"%d of cluster %d comes behind %d of cluster %d, which depends on it", later.revision, later.lane.cluster, it.revision, it.lane.cluster)
				}
			}
		}
		for _, l := range lanes {
			require.Equal(t, brought[l], given[l], "a watch of cluster %d stands still", l.cluster)
		}
	})
}
