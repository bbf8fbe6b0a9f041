package replica

import (
	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// Write is a command to be logged.
type Write struct {
	Command command.Command
	// Parts are the partitions that it touches. More than one, or a command of
	// the system, makes a rendezvous.
	Parts placement.Set
	// System marks commands that change what all partitions share.
	System bool
	// Session marks a write that is ordered among others (command.InSession).
	// It is never proposed again by the replica itself: once the epoch in which
	// it was submitted has ended, it fails with TimeoutLeaderFail, whether or not
	// it had got into the log, and its session starts anew from there.
	Session bool
	// Home, of a session's write, is the participant in whose log it follows
	// the session's earlier writes.
	Home int32
	// Epoch, if not 0, is the only one of this server in which the write may be stamped: it is what this server has decided as
	// the one that stamps, such as that a lease has run out. In another one, or by another server, the decision could be
	// another; it fails with TimeoutLeaderFail.
	Epoch uint64
	// Done is called once, from any goroutine, and must not block. An error of
	// the kinds Timeout… leaves open whether the write took effect.
	Done func(Outcome)
	// Met, of a step of a transit, is called when the first participant has come to it on this
	// server, and waits, and again when all have, right before it is executed. It must not
	// block. It is not called on a server that forwards the write; it may be nil.
	Met func(all bool)
	// Trace follows the write; nil, as nearly always: nothing does.
	Trace *Trace

	deadline int64 // tick; 0: not yet set
}

// limit sets a write's deadline, unless it has one from an earlier submission.
func (r *Replica) limit(w *Write) {
	if w.deadline == 0 {
		w.deadline = r.deadline()
	}
}

// Outcome is the result of a write, and where in the logs it took effect.
type Outcome struct {
	apply.Result
	Group int
	Index uint64
}

// resubmit routes a write that is not in the log to the server that stamps now.
func (r *Replica) resubmit(writes []*Write) {
	for _, w := range writes {
		if w.Session {
			w.fail(fault.TimeoutLeaderFail)
		} else {
			r.Submit(w)
		}
	}
}

func (w *Write) fail(err error) { w.Done(Outcome{Result: apply.Result{Err: err}}) }

// alone reports whether a write is in an entry of its own: a token is named by its place in one log, and with a session's
// write beside it, of several partitions, its entry would be a rendezvous.
func (w *Write) alone() bool { return w.Command.Kind == command.Auth }

func failAll(writes []*Write, err error) {
	for _, w := range writes {
		w.fail(err)
	}
}

// takeIf removes the writes that match. The others keep their places, which are
// those of their commands in an entry.
func takeIf(writes []*Write, match func(*Write) bool) (taken []*Write) {
	for i, w := range writes {
		if w != nil && match(w) {
			taken = append(taken, w)
			writes[i] = nil
		}
	}
	return taken
}

func always(*Write) bool { return true }
