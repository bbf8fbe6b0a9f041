package node

import (
	"time"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/store"
)

// Keys that have to move do so in steps, each of which blocks the partitions that it concerns
// (apply.Machine.StepParts), until they meet, a number of keys are moved, and up to stepVisits other keys or directories are passed over.
// The remaining time, at least two thirds, is for other requests.
const (
	leastStepKeys = 64   // which move in a quarter of a millisecond, about as long as a put takes
	longStepKeys  = 250  // in the end, of a transit of so many keys that small steps would take minutes
	mostStepKeys  = 1000 // where partitions that have much to do take longer to meet
	stepVisits    = 20_000
)

// pace is how a transit gets on.
type pace struct {
	keys int // of the next step
	made int // keys of the steps of this transit that this server has led, at most

	// Of the last step, on this server: when the first partition waited for others, and
	// when all had come. Zero if it was another server that led.
	first, all time.Time
}

func startPace() pace { return pace{keys: leastStepKeys} }

// met is called by the loops, one at a time.
func (p *pace) met(all bool) {
	if now := time.Now(); all {
		p.all = now
	} else {
		p.first = now
	}
}

// stepped returns for how long partitions have waited for a step that ends now. The next one has
// more keys if that was mostly until they met, which takes as long for few keys as for many, and
// where very many have been moved already.
func (p *pace) stepped(began, now time.Time) (waited time.Duration) {
	waited = now.Sub(began)
	p.made += p.keys
	if !p.first.IsZero() && !p.all.IsZero() {
		moved := now.Sub(p.all)
		waited = now.Sub(p.first)
		switch {
		case moved <= waited/4:
			p.keys *= 2
		case moved > waited/2:
			p.keys /= 2
		}
	}
	least := min(max(p.made/32, leastStepKeys), longStepKeys)
	p.keys = min(max(p.keys, least), mostStepKeys)
	p.first, p.all = time.Time{}, time.Time{}
	return waited
}

// move brings keys on their way, on the leader. Where they have got to is in the
// log, so that another leader goes on from there.
func (n *Node) move() {
	for p := startPace(); n.moveOn(&p); {
	}
}

// moveOn makes a step if there is one to make here, and tells whether there may be
// another.
func (n *Node) moveOn(p *pace) bool {
	c := n.current()
	if !c.replica.Leading() {
		return false
	}
	step := c.machine.Ahead(store.Budget{Keys: p.keys, Visits: stepVisits})
	if step == nil {
		return false
	}
	began := time.Now()
	done := make(chan error, 1)
	c.replica.Submit(&replica.Write{
		Command: command.Command{Kind: command.Move, Body: step.AppendTo(nil)},
		Parts:   c.machine.StepParts(step), System: true, Met: p.met,
		Done: func(out replica.Outcome) { done <- out.Err },
	})
	select {
	case err := <-done:
		if err != nil {
			n.log.Debug("keys could not be moved on yet", zap.Error(err))
			return false
		}
	case <-n.life.Done():
		return false
	}
	pause := max(n.cfg.StepPause, 2*p.stepped(began, time.Now()))
	if step.Last {
		*p = startPace()
	}
	return n.pause(n.life, pause) == nil
}
