package replica

import (
	"slices"
	"sync"

	"github.com/stoa-kv/stoa/internal/fault"
)

// A strict read must know that no other server has stamped since the read
// began. Raft's ReadIndex asks that per group; here one question per peer
// covers all groups: a majority that says, after the read began, that it knows
// of no later term in any group, has not elected anybody else in any of them.
// Everything acknowledged before that was stamped by this leader or one before
// it, and is at or below the C that was taken when the question was asked.

// Confirm asks a peer whether it knows a later term in any group.
type Confirm struct {
	Round uint64
	Terms []uint64
}

// ConfirmAck answers the Confirm of the same round.
type ConfirmAck struct {
	Round uint64
	OK    bool
}

// confirmer runs one round at a time; reads that come meanwhile share the next.
type confirmer struct {
	r       *Replica
	mu      sync.Mutex
	next    []func(readPoint, error)
	current *round
	rounds  uint64
}

// readPoint is what a strict read must wait for: the commit index of every
// group and the committed watermark when its round began.
type readPoint struct {
	committed int64
	indexes   []uint64
}

type round struct {
	ask     Confirm
	asked   int64 // tick
	acks    map[uint64]bool
	point   readPoint
	waiting []func(readPoint, error)
}

func (c *confirmer) init(r *Replica) { c.r, c.rounds = r, r.numbering() }

// vote is a server's word that it knew of no later terms than these, one for each
// group, after the reads began for which it asks.
type vote struct {
	from  uint64
	terms []uint64
}

// confirm calls done with a read point that is later than this call. The vote is
// that of the server on whose behalf it is called, if it isn't this one: it counts
// for the reads that it was given with, however late it comes.
func (c *confirmer) confirm(asker vote, done func(readPoint, error)) {
	if c.r.single || c.r.cfg.Mutations.ReadWithoutConfirm {
		if !c.r.seq.IsOpen() {
			done(readPoint{}, fault.LeaderChanged)
			return
		}
		done(c.r.point(), nil)
		return
	}
	if c.settled(asker) {
		done(c.r.point(), nil)
		return
	}
	c.mu.Lock()
	c.next = append(c.next, done)
	if c.current == nil {
		c.begin()
	}
	c.mu.Unlock()
}

// settled tells whether the asker and this leader are a majority, and both know
// nobody later.
func (c *confirmer) settled(asker vote) bool {
	if len(c.r.cfg.Voters) > 3 || asker.from == c.r.cfg.ID || !slices.Contains(c.r.cfg.Voters, asker.from) {
		return false
	}
	terms, ok := c.r.lead.terms()
	return ok && noneLater(asker.terms, terms)
}

// noneLater tells whether known, of one server, has no term beyond those of a leader.
func noneLater(known, terms []uint64) bool {
	ok := len(known) == len(terms)
	for i := 0; ok && i < len(terms); i++ {
		ok = known[i] <= terms[i]
	}
	return ok
}

// known are the terms that this server knows, which it publishes before a vote in
// them leaves (invariant 3).
func (r *Replica) known() []uint64 {
	terms := make([]uint64, len(r.groups))
	for i, g := range r.groups {
		terms[i] = g.curTerm.Load()
	}
	return terms
}

// point is taken before the question leaves: what was acknowledged before is
// in it.
func (r *Replica) point() readPoint {
	p := readPoint{committed: r.seq.Committed(), indexes: make([]uint64, len(r.groups))}
	for i, g := range r.groups {
		p.indexes[i] = g.commit.Load()
	}
	return p
}

// begin starts a round for all who wait. With mu held.
func (c *confirmer) begin() {
	waiting := c.next
	c.next = nil
	terms, ok := c.r.lead.terms()
	if !ok {
		failReads(waiting, fault.LeaderChanged)
		return
	}
	c.rounds++
	c.current = &round{
		ask:     Confirm{Round: c.rounds, Terms: terms},
		asked:   c.r.now.Load(),
		acks:    map[uint64]bool{c.r.cfg.ID: true},
		point:   c.r.point(),
		waiting: waiting,
	}
	c.send()
}

func (c *confirmer) send() {
	for _, peer := range c.r.cfg.Voters {
		if peer != c.r.cfg.ID && !c.current.acks[peer] {
			ask := c.current.ask
			c.r.cfg.Network.Send(peer, Packet{Confirm: &ask})
		}
	}
}

func (c *confirmer) acked(from uint64, a *ConfirmAck) {
	c.mu.Lock()
	cur := c.current
	if cur == nil || cur.ask.Round != a.Round || !a.OK {
		// A refusal comes with a later term, which Raft acts upon.
		c.mu.Unlock()
		return
	}
	cur.acks[from] = true
	if len(cur.acks) <= len(c.r.cfg.Voters)/2 {
		c.mu.Unlock()
		return
	}
	c.current = nil
	if len(c.next) > 0 {
		c.begin()
	}
	c.mu.Unlock()
	for _, done := range cur.waiting {
		done(cur.point, nil)
	}
}

// tick asks again what may have been lost.
func (c *confirmer) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil && c.r.now.Load()-c.current.asked >= 2 {
		c.current.asked = c.r.now.Load()
		c.send()
	}
}

// fail ends all rounds.
func (c *confirmer) fail(err error) {
	c.mu.Lock()
	var all []func(readPoint, error)
	if c.current != nil {
		all = c.current.waiting
		c.current = nil
	}
	all = append(all, c.next...)
	c.next = nil
	c.mu.Unlock()
	failReads(all, err)
}

func failReads(all []func(readPoint, error), err error) {
	for _, done := range all {
		done(readPoint{}, err)
	}
}

// answerConfirm promises nothing about the future: it says what was true after
// the question came. Terms are published before votes leave (invariant 3).
func (r *Replica) answerConfirm(ask *Confirm) *ConfirmAck {
	return &ConfirmAck{Round: ask.Round, OK: noneLater(r.known(), ask.Terms)}
}
