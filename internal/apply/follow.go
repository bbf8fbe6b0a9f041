package apply

import (
	"errors"

	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
)

// followed carries out the consequences of a command: the extension manager's work on
// keys under /em/, the event handlers, and the count of the failures of extensions.
// If that exceeds the work limit of one command, the command is rolled back and refused
// (invariant 2), but for the end of a lease, which is split into smaller commands.
func (x *execution) followed(r Result) Result {
	err := x.consequences()
	if err == nil && x.ending == 0 { // the end of a lease frees; its handlers are refused one by one
		err = x.fits()
	}
	switch {
	case again(err):
		x.undo(err)
		return x.failed(err)
	case x.ending != 0:
		r, err = x.finishLease(r, err), nil
	case err != nil:
		x.undo(err)
		r = x.failed(err)
	}
	x.settleBlock(r.Response)
	x.recordFailures(err == nil && !x.comesBack(r.Err))
	x.noteWork()
	if r.Err != nil && x.sub > 0 {
		r.Rev = x.rev // the counts have been written
	}
	return r
}

// again reports that the command has no effect here and comes again.
func again(err error) bool { return errors.Is(err, fault.Moved) }

// comesBack reports whether the command is executed again, in other partitions: this time it has no effect.
func (x *execution) comesBack(err error) bool {
	return again(err) && x.m.Level() >= levelOfEffectlessMoves
}

// consequences runs the extension manager and the event handlers on a command. An error
// says that they exceed its work limit, and that some of them have not run.
func (x *execution) consequences() error {
	if x.touched {
		x.managed()
	}
	return x.react()
}

// mark notes the state before a command, if it may have to be rolled back.
func (x *execution) mark() {
	x.marks = x.marks[:0]
	if x.tenants == nil && !x.m.Extensions().HasEvents() {
		return
	}
	for p := range x.parts.Each() {
		x.marks = append(x.marks, x.m.Stores[p].Mark())
	}
}

// undo takes the command back because of err: nothing of it has been shown to the sink.
func (x *execution) undo(err error) {
	for _, t := range x.tallies {
		if t.ran && x.m.Meter != nil {
			x.m.Meter.Undone(t.e.Name, x.rev, err)
		}
	}
	i := 0
	for p := range x.parts.Each() {
		x.m.Stores[p].Undo(x.marks[i])
		i++
	}
	x.sub = 0
	x.changes = x.changes[:x.from]
	clear(x.spread)
	x.resetDeltas()
	x.touched, x.renew, x.renamed, x.fresh = false, false, nil, nil
	x.m.audiences.forgetAll()
}

// recordFailures writes for each extension that ran whether it has kept to its limits: once for
// a request, however often it ran. The key is replicated, so that all servers disable an
// extension at the same place in the log. A request that was rolled back doesn't
// reset the count of failures.
func (x *execution) recordFailures(stands bool) {
	limits := &x.m.Extensions().Limits
	for _, t := range x.tallies {
		switch {
		case t.failed != nil:
			x.set(t.e.StateKey(), []byte(t.standing.Fail(t.failed.Error(), limits).String()))
		case stands && t.ran && t.standing.Failures > 0:
			x.set(t.e.StateKey(), []byte(extension.Standing{}.String()))
		}
	}
}
