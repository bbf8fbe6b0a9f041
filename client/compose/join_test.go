package compose

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/client/mirror"
	mirrored "github.com/stoa-kv/stoa/client/mirror/cluster"
)

// mirrorHistory is the events of home, and what a worker has made of them in the target.
type mirrorHistory struct {
	home        []string
	keys, marks []*clientv3.Event
	at          int64 // revision of the target
	after       int64 // of the mark before
	revision    int64 // of home
}

func (h *mirrorHistory) mark(m mirror.Mark) {
	m.Keys, m.After = "k", h.after
	if m.Phase == mirror.At {
		h.after = m.Revision
	}
	value, _ := json.Marshal(m)
	h.marks = append(h.marks, &clientv3.Event{Kv: &mvccpb.KeyValue{Key: []byte("mark"), Value: value, ModRevision: h.at}})
}

// transaction is one of a worker's: revisions of home, of different keys and with deletions in the
// last alone.
func (h *mirrorHistory) transaction(t *rapid.T) {
	h.at += int64(rapid.IntRange(1, 3).Draw(t, "other revisions of the target"))
	keys := rapid.Permutation([]string{"a", "b", "c"}).Draw(t, "keys")
	n := rapid.IntRange(0, 3).Draw(t, "revisions")
	for i := range n {
		h.revision += int64(rapid.IntRange(1, 2).Draw(t, "other revisions of home"))
		kv := &mvccpb.KeyValue{Key: []byte(keys[i]), Value: fmt.Append(nil, h.revision), CreateRevision: 1, ModRevision: h.revision, Version: 3}
		e := &clientv3.Event{Type: clientv3.EventTypePut, Kv: &mvccpb.KeyValue{Key: kv.Key, Value: mirrored.Stamped(kv), ModRevision: h.at}}
		if i == n-1 && rapid.Bool().Draw(t, "deleted") {
			kv = &mvccpb.KeyValue{Key: kv.Key, ModRevision: h.revision}
			e = &clientv3.Event{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{Key: kv.Key, ModRevision: h.at}}
		}
		h.home = append(h.home, fmt.Sprint(e.Type, kv))
		h.keys = append(h.keys, e)
	}
	h.mark(mirror.Mark{Phase: mirror.At, Revision: h.revision})
}

// Whatever the order in which the two watches bring their events: what is returned is a prefix of
// home's events, and done is where it ends. Without a gap it is all of them.
func TestJoinDrawn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &mirrorHistory{revision: 5, after: 5, at: 100}
		gap := rapid.SampledFrom([]string{"", "", "a copy", "a lost mark", "another writer"}).Draw(t, "gap")
		before, n := 0, rapid.IntRange(1, 6).Draw(t, "transactions")
		for i := range n {
			if i == n/2 {
				before = len(h.home)
				switch gap {
				case "a copy":
					h.at++
					h.mark(mirror.Mark{Phase: mirror.Copying, Revision: h.revision})
				case "a lost mark":
					h.after--
				case "another writer":
					h.at++
					h.keys = append(h.keys, &clientv3.Event{Kv: &mvccpb.KeyValue{Key: []byte("a"), Value: []byte("x"), ModRevision: h.at}})
				}
			}
			h.transaction(t)
		}
		if gap == "" {
			before = len(h.home)
		}
		j := &joiner{after: 5, done: 5}
		var got []string
		var broken error
		check := func() {
			out, err := j.take()
			for _, e := range out {
				got = append(got, fmt.Sprint(e.Type, e.Kv))
			}
			broken = err
			require.LessOrEqual(t, len(got), before)
			require.Equal(t, append([]string{}, h.home[:len(got)]...), append([]string{}, got...))
		}
		keys, marks := h.keys, h.marks
		for broken == nil && len(keys)+len(marks) > 0 {
			if len(keys) > 0 && (len(marks) == 0 || rapid.Bool().Draw(t, "keys first")) {
				k := 1 // the events of a revision come together
				for k < len(keys) && keys[k].Kv.ModRevision == keys[0].Kv.ModRevision {
					k++
				}
				j.changed(keys[:k])
				keys = keys[k:]
			} else {
				j.marked(marks[0])
				marks = marks[1:]
			}
			check()
			if len(keys) == 0 && len(marks) == 0 || rapid.IntRange(0, 3).Draw(t, "progress") == 0 {
				through := h.at
				if len(keys) > 0 {
					through = min(through, keys[0].Kv.ModRevision-1)
				}
				if len(marks) > 0 {
					through = min(through, marks[0].Kv.ModRevision-1)
				}
				j.complete(through)
			}
		}
		if gap == "" {
			require.NoError(t, broken)
			require.Len(t, got, len(h.home))
			require.Equal(t, h.revision, j.done)
			return
		}
		require.ErrorIs(t, broken, errBroken)
		require.LessOrEqual(t, j.done, h.revision)
	})
}
