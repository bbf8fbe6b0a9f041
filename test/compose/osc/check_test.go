package osc

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// put and get are short for operations on one key.
func put(client, cluster int, key, value string, revision, start, end int64) *Op {
	return &Op{Client: client, Cluster: cluster, Update: true, Keys: map[string]Version{key: {Value: value}}, Revision: revision, Start: start, End: end}
}

func get(client, cluster int, key, value string, mod, start, end int64) *Op {
	return &Op{Client: client, Cluster: cluster, Keys: map[string]Version{key: {value, mod}}, Start: start, End: end}
}

// The examples of the paper and of the definition.
var stories = []struct {
	name string
	ops  []*Op
	says string // "" if it is consistent
}{
	{name: "figure 1: each cluster is right, both together are not", says: "INCONSISTENT: no order explains these 4 operations", ops: []*Op{
		put(1, 1, "x", "5", 2, 0, 10), get(1, 2, "y", "", 0, 20, 60),
		put(2, 2, "y", "3", 2, 0, 10), get(2, 1, "x", "", 0, 20, 60),
	}},
	{name: "figure 3: with syncs client 1 reads the new y", ops: []*Op{
		put(1, 1, "x", "5", 2, 0, 40), get(1, 2, "y", "3", 2, 50, 60),
		put(2, 2, "y", "3", 2, 0, 10), get(2, 1, "x", "", 0, 20, 30),
	}},
	{name: "figure 1 in one cluster", says: "INCONSISTENT", ops: []*Op{
		put(1, 1, "x", "5", 2, 0, 10), get(1, 1, "y", "", 0, 20, 60),
		put(2, 1, "y", "3", 3, 0, 10), get(2, 1, "x", "", 0, 20, 60),
	}},
	{name: "another client may read what is old", ops: []*Op{
		put(1, 1, "x", "5", 2, 0, 10), get(2, 1, "x", "", 0, 20, 30), get(2, 1, "x", "5", 2, 40, 50),
	}},
	{name: "but not go back", says: "INCONSISTENT", ops: []*Op{
		put(1, 1, "x", "5", 2, 0, 10), get(2, 1, "x", "5", 2, 20, 30), get(2, 1, "x", "", 0, 40, 50),
	}},
	{name: "a client reads what it wrote", says: "INCONSISTENT", ops: []*Op{
		put(1, 1, "x", "5", 2, 0, 10), get(1, 1, "x", "", 0, 20, 30),
	}},
	{name: "what one client tells by a key in another cluster is known there", says: "INCONSISTENT", ops: []*Op{
		put(1, 1, "data", "d", 2, 0, 10), put(1, 2, "ready", "r", 2, 20, 30),
		get(2, 2, "ready", "r", 2, 40, 50), get(2, 1, "data", "", 0, 60, 70),
	}},
	{name: "over three clusters, too", says: "INCONSISTENT", ops: []*Op{
		put(1, 1, "x", "1", 2, 0, 10), get(1, 2, "y", "", 0, 20, 60),
		put(2, 2, "y", "2", 2, 0, 10), get(2, 3, "z", "", 0, 20, 60),
		put(3, 3, "z", "3", 2, 0, 10), get(3, 1, "x", "", 0, 20, 60),
	}},
	{name: "updates follow real time within a cluster", says: "INCONSISTENT: no order explains these 2 operations", ops: []*Op{
		put(1, 1, "x", "5", 3, 0, 10), put(2, 1, "y", "6", 2, 20, 30),
	}},
	{name: "and over clusters", says: "INCONSISTENT", ops: []*Op{
		put(1, 1, "x", "5", 2, 0, 10), put(2, 2, "y", "6", 2, 20, 30),
		get(3, 2, "y", "6", 2, 0, 60), get(3, 1, "x", "", 0, 0, 60),
	}},
	{name: "updates at the same time may have any order", ops: []*Op{
		put(1, 1, "x", "5", 2, 0, 25), put(2, 2, "y", "6", 2, 20, 30),
		get(3, 2, "y", "6", 2, 40, 60), get(3, 1, "x", "", 0, 40, 60),
	}},
	{name: "no read of a later write", says: "INCONSISTENT", ops: []*Op{
		get(2, 1, "x", "5", 2, 0, 10), put(1, 1, "x", "5", 2, 20, 30),
	}},
	{name: "a read of two keys is of one state", says: "INCONSISTENT", ops: []*Op{
		put(1, 1, "x", "5", 2, 0, 10), put(1, 1, "y", "6", 3, 20, 30),
		{Client: 2, Cluster: 1, Keys: map[string]Version{"x": {}, "y": {"6", 3}}, Start: 0, End: 60},
	}},
	{name: "an update is there as a whole", says: "INCONSISTENT", ops: []*Op{
		{Client: 1, Cluster: 1, Update: true, Keys: map[string]Version{"x": {Value: "5"}, "y": {Value: "6"}}, Revision: 2, End: 10},
		{Client: 2, Cluster: 1, Keys: map[string]Version{"x": {}, "y": {"6", 2}}, Start: 0, End: 60},
	}},
	{name: "a value out of nowhere", says: "NOWHERE", ops: []*Op{get(2, 1, "x", "5", 2, 0, 10)}},
	{name: "a value of another revision", says: "ANOTHER", ops: []*Op{put(1, 1, "x", "5", 2, 0, 10), get(2, 1, "x", "6", 2, 20, 30)}},
	{name: "one revision for two updates", says: "TWICE", ops: []*Op{put(1, 1, "x", "5", 2, 0, 10), put(2, 1, "y", "6", 2, 0, 10)}},
	{name: "an update without an answer may come late, behind its client's next one", ops: []*Op{
		failed(put(1, 1, "x", "5", 3, 0, never)), put(1, 1, "y", "6", 2, 20, 30),
	}},
	{name: "but not before its client's last one", says: "INCONSISTENT", ops: []*Op{
		put(1, 1, "y", "6", 3, 0, 10), failed(put(1, 1, "x", "5", 2, 20, never)),
	}},
}

func failed(o *Op) *Op {
	o.Failed = true
	return o
}

func TestStories(t *testing.T) {
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			err := Check(s.ops)
			require.Equal(t, s.says == "", explained(s.ops), "the definition")
			if s.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, s.says)
			var v *Violation
			if errors.As(err, &v) {
				require.Len(t, v.Why, len(v.Cycle))
				require.False(t, explained(v.Cycle), "the operations of the cycle suffice")
			}
		})
	}
}

func TestResolve(t *testing.T) {
	told := Told{}
	told.Add("x", "5", 2)
	told.Add("y", "6", 2)
	told.Add("x", "7", 3)
	both := func(value string, revision int64) *Op {
		return &Op{Client: 1, Update: true, Keys: map[string]Version{"x": {Value: "5"}, "y": {Value: value}}, Revision: revision}
	}
	unknown := failed(put(1, 0, "x", "7", 0, 0, never))
	ops, err := Resolve([]*Op{both("6", 2), failed(get(1, 0, "x", "", 0, 0, never)), failed(put(1, 0, "x", "8", 0, 0, never)), unknown}, []Told{told})
	require.NoError(t, err)
	require.Len(t, ops, 2)
	require.EqualValues(t, 3, unknown.Revision)

	for says, o := range map[string]*Op{
		"LOST": put(1, 0, "x", "8", 4, 0, 10), "MOVED": put(1, 0, "x", "7", 4, 0, 10), "HALF": both("7", 2),
		"GHOST": {Update: true, Keys: map[string]Version{"x": {Value: "7"}}, Failed: true, Refused: true},
	} {
		_, err := Resolve([]*Op{o}, []Told{told})
		require.ErrorContains(t, err, says)
	}
	told.Add("y", "9", 3)
	_, err = Resolve([]*Op{both("9", 2)}, []Told{told})
	require.ErrorContains(t, err, "HALF")
}

// Clients record while others do.
func TestHistoryOfManyClients(t *testing.T) {
	h := NewHistory()
	done := make(chan struct{})
	for i := range 4 {
		go func() {
			for range 100 {
				o := h.Begin(&Op{Client: i})
				h.End(o, func() { o.Keys = map[string]Version{"x": {}} })
			}
			done <- struct{}{}
		}()
	}
	for range 4 {
		<-done
	}
	require.Len(t, h.Ops(), 400)
	require.NoError(t, Check(h.Ops()))
}
