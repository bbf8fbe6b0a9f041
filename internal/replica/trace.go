package replica

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/command"
)

// Step is one that a write takes on its way.
type Step int

// The steps in their order. A write goes through those from Accepted to Applied on the server
// that stamps; on one that forwards it, through the others.
const (
	Accepted  Step = iota // the server stamps, and has the write
	Stamped               // it is part of an entry that has its revisions
	Logged                // its entry is synced on this server
	Committed             // a majority has synced it
	Applied               // it has taken effect on this server
	Forwarded             // it is about to be sent to the server that stamps
	Answered              // that server has answered
	Reflected             // this one has applied it
	Steps                 // the number of them
)

// A Trace follows one write, of very few. Its functions are called from any goroutine, also
// under locks: they must be quick, and not call back.
type Trace struct {
	// Reached says that the write has taken a step. A partition is where, for all from Stamped
	// to Applied; those of a write of several partitions are taken in each of them. A write that
	// fails doesn't reach all steps.
	Reached func(step Step, partition int)
	// Wire goes with the write to the server that stamps, whose Config.Trace reads it.
	Wire func() []byte
}

// reached is called on a nil Trace for nearly all writes.
func (t *Trace) reached(step Step, partition int) {
	if t != nil {
		t.Reached(step, partition)
	}
}

// forward begins the write's way to another server.
func (t *Trace) forward() []byte {
	if t == nil {
		return nil
	}
	t.Reached(Forwarded, 0)
	return t.Wire()
}

// traces are those of the writes of one entry.
type traces []*Trace

// tracesOf returns nil for nearly all entries.
func tracesOf(writes []*Write) (list traces) {
	for _, w := range writes {
		if w.Trace != nil {
			list = append(list, w.Trace)
		}
	}
	return list
}

func (ts traces) reached(step Step, partition int) {
	for _, t := range ts {
		t.Reached(step, partition)
	}
}

// maxTraced bounds the traced entries of a group that are in its log and not committed. More
// are not followed.
const maxTraced = 64

// traced is an entry that this group has proposed, until it is committed.
type traced struct {
	seq uint64
	of  traces
}

// follow notes a proposed entry that is traced. Those that an earlier term has left are not
// followed any more.
func (g *group) follow(q *queued) {
	if q.traces != nil && len(g.traced) < maxTraced {
		g.traced = append(g.traced, traced{q.seq, q.traces})
	}
}

// place is that of an entry among those that are followed, or -1.
func (g *group) place(e *command.Entry) int {
	if e.Origin != g.r.cfg.Origin {
		return -1
	}
	return slices.IndexFunc(g.traced, func(t traced) bool { return t.seq == e.Seq })
}

// tracedIn returns the traces of entries that are about to be logged. It is called only while
// any is followed.
func (g *group) tracedIn(entries []*raftpb.Entry) (found traces) {
	for _, e := range entries {
		if e.GetType() != raftpb.EntryNormal || len(e.GetData()) == 0 {
			continue
		}
		if c, err := command.Decode(e.GetData()); err == nil {
			if i := g.place(&c); i >= 0 {
				found = append(found, g.traced[i].of...)
			}
		}
	}
	return found
}

// tracedCommitted is called for each committed entry while any is followed.
func (g *group) tracedCommitted(e *command.Entry) {
	if i := g.place(e); i >= 0 {
		g.traced[i].of.reached(Committed, g.id)
		g.traced = slices.Delete(g.traced, i, i+1)
	}
}
