package session

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"pgregory.net/rapid"
)

func TestEventsOfSeveralWatchesComeInOneOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m Merge
		type told struct {
			watch uint64
			rev   int64
		}
		next := map[uint64]int64{}
		added, popped := 0, []told{}
		ended := map[uint64]bool{}
		pop := func(through int64) {
			for {
				w, r, ok := m.Pop(through)
				if !ok {
					return
				}
				if r.Canceled {
					ended[w] = true
				}
				for _, e := range r.Events {
					require.False(t, ended[w], "nothing comes after the end")
					require.LessOrEqual(t, e.Kv.ModRevision, r.Header.Revision)
					popped = append(popped, told{w, e.Kv.ModRevision})
				}
			}
		}
		finished := map[uint64]bool{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			w := rapid.Uint64Range(1, 3).Draw(t, "watch")
			switch {
			case finished[w]:
			case rapid.IntRange(0, 20).Draw(t, "end") == 0:
				finished[w] = true
				m.End(w, &pb.WatchResponse{Canceled: true})
			default:
				var events []*mvccpb.Event
				for range rapid.IntRange(1, 4).Draw(t, "events") {
					next[w] += rapid.Int64Range(0, 3).Draw(t, "gap")
					events = append(events, &mvccpb.Event{Kv: &mvccpb.KeyValue{ModRevision: next[w]}})
				}
				added += len(events)
				m.Add(w, events)
			}
			through := int64(1 << 40)
			for w := range uint64(3) {
				if !finished[w+1] {
					through = min(through, next[w+1]-1)
				}
			}
			if rapid.Bool().Draw(t, "pop") {
				pop(through)
			}
		}
		pop(1 << 40)
		require.Len(t, popped, added)
		require.Len(t, ended, len(finished))
		for i := 1; i < len(popped); i++ {
			require.LessOrEqual(t, popped[i-1].rev, popped[i].rev, "%v", popped)
		}
		require.Zero(t, m.Bytes())
	})
}

// What is left of a watch that is cancelled is gone, whatever else is kept.
func TestForgottenEventsTakeNoMemory(t *testing.T) {
	var m Merge
	add := func(watch uint64, rev int64) {
		m.Add(watch, []*mvccpb.Event{{Kv: &mvccpb.KeyValue{Value: make([]byte, 100), ModRevision: rev}}})
	}
	add(1, 2)
	one := m.Bytes()
	add(2, 3)
	add(1, 4)
	m.Forget(1)
	require.Equal(t, one, m.Bytes())
	require.EqualValues(t, 3, m.First())
	m.Forget(2)
	require.Zero(t, m.Bytes())
}
