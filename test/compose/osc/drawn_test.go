package osc

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// execution draws operations in a sequence, has clusters carry them out in it, and then
// gives them times at which they may have been sent and answered: an update somewhere
// around its place in the sequence, a read there or as much later as its client's next
// operation leaves room for. All of that is consistent, by the definition.
func execution(t *rapid.T, most int) []*Op {
	clients, clusters := rapid.IntRange(1, 3).Draw(t, "clients"), rapid.IntRange(1, 3).Draw(t, "clusters")
	n := rapid.IntRange(1, most).Draw(t, "operations")
	const unit = 1000
	now := map[place]Version{}
	revisions := map[int]int64{}
	var ops []*Op
	for i := range n {
		o := &Op{
			Client: rapid.IntRange(0, clients-1).Draw(t, "client"), Cluster: rapid.IntRange(0, clusters-1).Draw(t, "cluster"),
			Update: rapid.Bool().Draw(t, "update"), Keys: map[string]Version{},
		}
		keys := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"x", "y"}), 1, 2, rapid.ID).Draw(t, "keys")
		if o.Update {
			revisions[o.Cluster] += rapid.Int64Range(1, 3).Draw(t, "gap")
			o.Revision = revisions[o.Cluster]
		}
		for _, k := range keys {
			p := place{o.Cluster, k}
			if o.Update {
				o.Keys[k] = Version{Value: fmt.Sprint(i)}
				now[p] = Version{Value: fmt.Sprint(i), Mod: o.Revision}
			} else {
				o.Keys[k] = now[p]
			}
		}
		o.Start = int64(i+1) * unit // its place; times are made of it below
		ops = append(ops, o)
	}
	giveTimes(t, ops, int64(n+1)*unit)
	return ops
}

// giveTimes replaces places by times, from the last operation to the first. A client's
// operations may overlap, as asynchronous calls do.
func giveTimes(t *rapid.T, ops []*Op, end int64) {
	next := map[int]int64{} // by client: where its next operation takes place, at the latest
	for _, o := range slices.Backward(ops) {
		here, limit := o.Start, end
		if l, ok := next[o.Client]; ok {
			limit = l
		}
		if !o.Update {
			here = rapid.Int64Range(here, limit-1).Draw(t, "when")
		}
		next[o.Client] = here
		o.Start = here - rapid.Int64Range(0, 3000).Draw(t, "sent before")
		o.End = here + rapid.Int64Range(0, 3000).Draw(t, "answered after")
	}
	// A client sends in its order.
	last := map[int]int64{}
	for i := len(ops) - 1; i >= 0; i-- {
		if l, ok := last[ops[i].Client]; ok {
			ops[i].Start = min(ops[i].Start, l)
		}
		last[ops[i].Client] = ops[i].Start
	}
}

// Histories of sequential executions are accepted.
func TestExecutionsAreAccepted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		require.NoError(t, Check(execution(t, 40)))
	})
}

// For any change of a small history, the graph and the definition agree.
func TestGraphIsTheDefinition(t *testing.T) {
	refused, accepted := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		ops := execution(t, 7)
		require.True(t, explained(ops), "%v", ops)
		for range rapid.IntRange(1, 3).Draw(t, "changes") {
			change(t, ops)
		}
		err, fine := Check(ops), explained(ops)
		require.Equal(t, fine, err == nil, "%v\n%v", ops, err)
		if fine {
			accepted++
		} else {
			refused++
		}
	})
	require.Positive(t, refused, "no change did harm")
	require.Positive(t, accepted, "every change did harm")
}

// change makes another history of one: a read shows another version of a key, an
// operation has other times or is another client's, an update has no answer.
func change(t *rapid.T, ops []*Op) {
	o := rapid.SampledFrom(ops).Draw(t, "changed")
	switch rapid.IntRange(0, 5).Draw(t, "change") {
	case 0:
		o.Start, o.End = o.Start-2000, o.Start+rapid.Int64Range(-1500, 1500).Draw(t, "end")
	case 1:
		o.Client = (o.Client + 1) % 3
	case 2:
		if o.Update && !o.Failed {
			o.Failed, o.End = true, never
		}
	default:
		if o.Update {
			return
		}
		for _, key := range []string{"x", "y"} {
			if _, asked := o.Keys[key]; !asked {
				continue
			}
			versions := []Version{{}}
			for _, u := range ops {
				if v, wrote := u.Keys[key]; wrote && u.Update && u.Cluster == o.Cluster {
					versions = append(versions, Version{v.Value, u.Revision})
				}
			}
			o.Keys[key] = rapid.SampledFrom(versions).Draw(t, "version")
			return
		}
	}
}

// A long history with one stale read in it: it is found quickly, and reported
// as a short cycle.
func TestLongHistory(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	const clusters, keys, n = 3, 5, 100_000
	now := map[place]Version{}
	var revisions [clusters]int64
	var ops []*Op
	for i := range n {
		o := &Op{Client: rnd.IntN(20), Cluster: rnd.IntN(clusters), Update: rnd.IntN(2) == 0, Keys: map[string]Version{}, Start: int64(i) * 10, End: int64(i)*10 + 95}
		key := fmt.Sprint(rnd.IntN(keys))
		p := place{o.Cluster, key}
		if o.Update {
			revisions[o.Cluster]++
			o.Revision = revisions[o.Cluster]
			now[p] = Version{fmt.Sprint(i), o.Revision}
		}
		o.Keys[key] = now[p]
		ops = append(ops, o)
	}
	begun := time.Now()
	require.NoError(t, Check(ops))
	require.Less(t, time.Since(begun), 10*time.Second)

	at := n / 2 // a read of an old version, after its client has seen a later one
	for ops[at].Update || ops[at].Keys["3"].Mod == 0 {
		at++
	}
	ops[at].Keys["3"] = Version{}
	var v *Violation
	require.ErrorAs(t, Check(ops), &v)
	require.LessOrEqual(t, len(v.Cycle), 4, v.Error())
	require.Contains(t, v.Cycle, ops[at])
}
