//go:build !race

// The race detector makes this five times as long, and nothing here has a second goroutine: make
// test-race runs these tests without it.

package commit

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each of these faults of the protocol has to be found.
var mutations = []struct {
	name     string
	skew     bool
	sameHome bool
	wide     bool
	reader   bool
	budget   func(*world)
	mutate   func(*Request)
}{
	{name: "begin doesn't look for locks", mutate: at(Begin, noConditions)},
	{name: "prepare doesn't look for locks", mutate: at(Prepare, noConditions)},
	{name: "commit doesn't look at the record", budget: expiryAndMeeting, mutate: at(Commit, noConditions)},
	{name: "commit may be repeated by a request that is late", budget: loss, mutate: at(Commit, ifThereIsALock)},
	{name: "locks have the client's lease", budget: crash, mutate: func(r *Request) {
		lease(r, LockPrefix, func(Request) int64 { return leaseOf(*r) })
	}},
	{name: "a committed record keeps the client's lease", budget: crash, mutate: at(Commit, func(r *Request) {
		lease(r, RecordPrefix, leaseOfRecord)
	})},
	{name: "a pending record has no lease", budget: crash, mutate: at(Begin, func(r *Request) {
		lease(r, RecordPrefix, func(Request) int64 { return 0 })
	})},
	{name: "a pending transaction is taken for a dead one", budget: meeting, mutate: at(Look, func(r *Request) {
		r.If, r.Else = []Cond{{Key: r.Then[0].Key, Test: Is, Value: encode(Record{Phase: Pending, Lease: leaseOfRecord(*r)})}}, r.Then
		r.Then = []Op{get("no such key")}
	})},
	{name: "locks are released whoever's they are", budget: meeting, mutate: func(r *Request) {
		if r.Step == Release && r.If[0].Test == IsAt {
			r.If = nil
		}
	}},
	{name: "all locks are released if the first is there", wide: true, sameHome: true, budget: lossAndMeeting, mutate: func(r *Request) {
		if r.Step == Release && r.If[0].Test == Is && r.If[0].Key == LockPrefix+z {
			r.Then = append(r.Then, del(LockPrefix+x))
		}
	}},
	{name: "roll forward doesn't look at the lock", budget: meeting, mutate: at(RollForward, noConditions)},
	{name: "the record is removed with the commit", budget: crash, mutate: at(Commit, func(r *Request) {
		r.Then[0] = del(r.Then[0].Key)
	})},
	{name: "a recovery removes the record of a client that lives", budget: lossAndMeeting, mutate: at(Finish, func(r *Request) {
		r.Then = []Op{del(r.Then[0].Key)}
	})},
	{name: "keys that are only read aren't locked", skew: true, mutate: at(Prepare, func(r *Request) {
		r.If = nil
		r.Then = slices.DeleteFunc(r.Then, func(op Op) bool { return op.Do == Put })
	})},
	{name: "a reader doesn't look whether its record is there", reader: true, budget: expiryAndMeeting, mutate: at(Confirm, noConditions)},
	{name: "roll forward unlocks before it writes", budget: crash, mutate: at(RollForward, func(r *Request) {
		r.Then = slices.DeleteFunc(r.Then, func(op Op) bool { return op.Do == Put })
	})},
}

func TestMutations(t *testing.T) {
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			w := newWorld(m.skew, m.sameHome)
			if m.wide {
				w.widen()
			}
			w.reader = m.reader
			if m.budget != nil {
				m.budget(w)
			}
			w.mutate = m.mutate
			e := newExplorer()
			e.explore(w)
			require.NotEmpty(t, e.fault, "not found in %d states", len(e.seen))
			t.Logf("found in %d states:\n%s", len(e.seen), e.fault)
		})
	}
}

// Mistakes of a client in what it concludes, and in the order of its requests.
func TestWrongClients(t *testing.T) {
	for name, mistake := range map[string]func(*client, []Answer, []Request) []Request{
		"prepares before home has the record": func(c *client, answers []Answer, next []Request) []Request {
			switch {
			case c.at == Begin:
				return append(next, c.lock(1, Prepare))
			case c.at == Prepare && len(answers) == 2:
				return c.Next(answers[1:])
			}
			return next
		},
		"takes a lost answer to its commit for a failure": func(c *client, _ []Answer, next []Request) []Request {
			if c.at == Commit && c.lost {
				return c.Abandon()
			}
			return next
		},
		"takes a missing record for a failure": func(c *client, _ []Answer, next []Request) []Request {
			if c.outcome == IsUnknown {
				c.outcome = IsAbandoned
			}
			return next
		},
		"keeps its lease after a lost beginning": func(c *client, _ []Answer, next []Request) []Request {
			if c.at == "over" && c.outcome == IsAbandoned {
				c.retire = false
			}
			return next
		},
		"finishes before it rolls forward": func(c *client, _ []Answer, next []Request) []Request {
			if c.at == RollForward {
				return c.send(next[0], Request{Step: Finish, Cluster: c.home(), Then: []Op{del(c.recordKey())}})
			}
			return next
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(false, false)
			w.losses, w.recoveries, w.expiries, w.crashes = 1, 1, 1, 1
			w.mistake = mistake
			e := newExplorer()
			e.explore(w)
			require.NotEmpty(t, e.fault, "not found in %d states", len(e.seen))
			t.Logf("found in %d states:\n%s", len(e.seen), e.fault)
		})
	}
}

// A mistake of those who look for what others have left behind.
func TestWrongSweep(t *testing.T) {
	w := newWorld(false, false)
	w.crashes, w.recoveries = 1, 1
	w.slip = func(r *Recovery, next []Request) []Request { // it finishes, and doesn't roll forward
		if r.at == RollForward && len(r.locks) == 0 {
			return r.finish(r.done())
		}
		return next
	}
	e := newExplorer()
	e.explore(w)
	require.NotEmpty(t, e.fault, "not found in %d states", len(e.seen))
}

func loss(w *world)             { w.losses = 1 }
func crash(w *world)            { w.crashes = 1 }
func meeting(w *world)          { w.recoveries = 1 }
func expiryAndMeeting(w *world) { w.expiries, w.recoveries = 1, 1 }
func lossAndMeeting(w *world)   { w.losses, w.recoveries = 1, 1 }

func at(s Step, change func(*Request)) func(*Request) {
	return func(r *Request) {
		if r.Step == s {
			change(r)
		}
	}
}

func noConditions(r *Request) { r.If = nil }

func ifThereIsALock(r *Request) { r.If[0] = Cond{Key: x, Test: IsAt, Mod: 1} }

// lease gives puts below a prefix another lease.
func lease(r *Request, prefix string, of func(Request) int64) {
	for i := range r.Then {
		if op := &r.Then[i]; op.Do == Put && strings.HasPrefix(op.Key, prefix) {
			op.Lease = of(*r)
		}
	}
}

// leaseOfRecord is the lease of the transaction whose record a request has.
func leaseOfRecord(r Request) int64 {
	for _, op := range r.Then {
		if id, ok := strings.CutPrefix(op.Key, RecordPrefix); ok {
			return int64(id[0]-'1') + 1
		}
	}
	return 0
}

// leaseOf is the lease of the transaction whose locks a request writes.
func leaseOf(r Request) int64 {
	for _, op := range r.Then {
		if op.Do == Put && strings.HasPrefix(op.Key, LockPrefix) {
			if l, err := ParseLock(op.Value); err == nil {
				return int64(l.Txn[0]-'1') + 1
			}
		}
	}
	return 0
}
