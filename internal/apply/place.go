package apply

import (
	"bytes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
)

// Placement is the map by which keys are placed now. It is replaced at a
// rendezvous of all partitions, so a holder of any store's lock sees the current
// one; a caller without a lock must handle fault.Moved. The cursor of a transit that is apart
// moves at rendezvous of those that take part: to all others, the map is the same wherever it is.
func (m *Machine) Placement() *placement.Map { return m.placed.Load() }

// place begins the transit to the map that the registered extensions ask for; its steps
// move the keys, with all of their history. While a transit is under way it does nothing:
// the last step calls it again.
func (x *execution) place() {
	m := x.m
	now := m.Placement()
	if now.Partitions() == 1 || now.Transit() != nil || x.covers(now.All()) != nil {
		return
	}
	if next := m.wanted(now); next != now {
		x.replace(m.towards(now, next))
	}
}

// towards is the map at the beginning of a transit.
func (m *Machine) towards(now, to *placement.Map) *placement.Map {
	if m.Level() < levelOfApart {
		return now.Towards(to)
	}
	return now.TowardsApart(to)
}

// together has a transit under way go on as before levelOfApart, if the cluster's is lower now.
func (m *Machine) together() {
	if t := m.Placement().Transit(); m.Level() < levelOfApart && t != nil && t.Apart {
		m.placed.Store(t.Together())
	}
}

// StepParts are the partitions that a step of the transit under way concerns. The last one
// replaces the map. Quotas are divided anew among all partitions as keys move, so one that
// there is concerns all; they come and go at rendezvous of all.
func (m *Machine) StepParts(step *command.Step) placement.Set {
	now := m.Placement()
	t := now.Transit()
	if t == nil || !t.Apart || step.Last || m.tenants.Load() != nil {
		return now.All()
	}
	return t.Parts()
}

// replace puts another map in place, by which every key is where it was.
func (x *execution) replace(to *placement.Map) {
	x.m.placed.Store(to)
	// In a transit all copies of a session's write go to the same partitions. Those
	// from before go by another map.
	x.mergeSessions()
	through := x.before()
	if x.sub > 0 && x.published() {
		through = x.rev
	}
	if o := x.m.Observer; o != nil {
		o.Moved(through, to)
	}
}

// move makes a step of a transit: keys go to the partitions where they belong. It
// changes the map alone, no key-value, and takes no revision.
func (x *execution) move(body []byte) Result {
	step, err := command.DecodeStep(body)
	if err != nil {
		return x.failed(unreadable(command.Move, body))
	}
	m := x.m
	if err := x.covers(m.StepParts(&step)); err != nil {
		return x.failed(err)
	}
	t := m.Placement().Transit()
	if t == nil || !bytes.Equal(t.Cursor, step.From) {
		return x.moved() // another leader's step came first
	}
	bound := step.To
	if step.Last {
		bound = nil
	} else if bytes.Compare(bound, t.Cursor) <= 0 {
		return x.moved()
	}
	quotas := m.carrier()
	for _, span := range t.Ahead(bound) {
		if m.Level() < levelOfSlots {
			quotas.touch(m.Stores, span.Key, span.End)
		}
		store.Move(m.Stores, span.Key, span.End, routeOf(t, &span), quotas.moved())
	}
	quotas.grant()
	if !step.Last {
		m.placed.Store(t.Advance(bound))
		return x.moved()
	}
	x.replace(t.To)
	x.place() // for registrations and removals during the transit
	return x.moved()
}

// routeOf is how keys of a span of a transit move.
func routeOf(t *placement.Transit, span *placement.Span) store.Route {
	return store.Route{To: t.To.Run, Still: span.Still, Among: t.Parts()}
}

func (x *execution) moved() Result {
	return x.done(true, &pb.CompactionResponse{Header: x.header(true)})
}

// Ahead is the next step of the transit under way, nil if there is none: one that keeps
// about to a budget, so that other commands don't wait for it for long. Any server
// may propose it; the step that takes effect is the one in the log.
func (m *Machine) Ahead(budget store.Budget) *command.Step {
	t := m.Placement().Transit()
	if t == nil {
		return nil
	}
	for _, span := range t.Ahead(nil) {
		if budget.Keys == 0 || budget.Visits == 0 {
			return &command.Step{From: t.Cursor, To: span.Key}
		}
		var stop []byte
		if stop, budget = store.Piece(m.Stores, span.Key, span.End, routeOf(t, &span), budget); stop != nil {
			return &command.Step{From: t.Cursor, To: stop}
		}
	}
	return &command.Step{From: t.Cursor, Last: true}
}
