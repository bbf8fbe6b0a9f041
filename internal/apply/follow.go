package apply

import (
	"github.com/stoa-kv/stoa/internal/extension"
)

// followed carries out all that follows from a command: what the extension manager does
// about keys under /em/, the event handlers, and the count of the failures of extensions.
// If that is more work than one command may be, the command is taken back and refused
// (invariant 2), unless it is one that can't be refused.
func (x *execution) followed(r Result) Result {
	if x.touched {
		x.managed()
	}
	err := x.react()
	if err != nil && !x.ending {
		x.undo()
		r = x.failed(err)
	}
	x.settle(err == nil || x.ending)
	if r.Err != nil && x.sub > 0 {
		r.Rev = x.rev // the counts have been written
	}
	return r
}

// mark notes the state before a command, if it may have to be taken back.
func (x *execution) mark() {
	x.marks = x.marks[:0]
	if !x.m.Extensions().HasEvents() {
		return
	}
	for p := range x.parts.Each() {
		x.marks = append(x.marks, x.m.Stores[p].Mark())
	}
}

// undo takes the command back: nothing of it has been shown to the sink.
func (x *execution) undo() {
	i := 0
	for p := range x.parts.Each() {
		x.m.Stores[p].Undo(x.marks[i])
		i++
	}
	x.sub = 0
	x.changes = x.changes[:x.from]
	clear(x.spread)
	x.touched, x.renew, x.renamed, x.fresh = false, false, nil, nil
	x.m.audiences.forgetAll()
}

// settle writes for each extension that ran whether it has kept to its limits: once for
// a request, however often it ran. The key is replicated, so that all servers disable an
// extension at the same place in the log. A request that was taken back is no evidence
// that all is well again.
func (x *execution) settle(stands bool) {
	limits := &x.m.Extensions().Limits
	for _, t := range x.tallies {
		switch {
		case t.failed != nil:
			x.set(t.e.StateKey(), []byte(t.standing.Fail(t.failed.Error(), limits).String()), 0)
		case stands && t.ran && t.standing.Failures > 0:
			x.set(t.e.StateKey(), []byte(extension.Standing{}.String()), 0)
		}
	}
}
