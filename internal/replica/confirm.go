package replica

import (
	"sync"

	"github.com/stoa-kv/stoa/internal/fault"
)

// A strict read must know that no other server has stamped since the read
// began. Raft's ReadIndex asks that per group; here one question per peer
// covers all groups: a majority that confirms, after the read began, that it
// knows no later term in any group, has not elected another leader in any of
// them. Everything acknowledged before that was stamped by this leader or one
// before it, and is at or below the C that was taken when the question was
// sent.

// Confirm asks a peer whether it knows a later term in any group.
type Confirm struct {
	Round uint64
	Terms []uint64
	// Generation is that of the groups. A server in another one doesn't answer.
	Generation uint32
}

// ConfirmAck answers the Confirm of the same round.
type ConfirmAck struct {
	Round uint64
	OK    bool
}

// confirmer runs one round at a time; later reads share the next.
type confirmer struct {
	r       *Replica
	mu      sync.Mutex
	next    []unconfirmed
	current *round
	rounds  uint64
}

// unconfirmed is a read that waits for the end of a round.
type unconfirmed struct {
	deadline int64 // tick
	done     func(readPoint, error)
}

// readPoint is what a strict read must wait for: the commit index of every
// group and the committed watermark when its round began.
type readPoint struct {
	epoch     uint64
	committed int64
	indexes   []uint64
}

// until is the point of one partition. With a single group the log's order is that
// of revisions, and its index says it all.
func (p *readPoint) until(group int) until {
	if len(p.indexes) == 1 {
		return until{index: p.indexes[group]}
	}
	return until{p.indexes[group], p.committed, p.epoch}
}

type round struct {
	ask     Confirm
	asked   int64 // tick
	acks    map[uint64]bool
	point   readPoint
	waiting []unconfirmed
}

func (c *confirmer) init(r *Replica) { c.r, c.rounds = r, r.numbering() }

// confirmation is a server's statement that it knew of no later terms than these, one for each
// group, after the reads began for which it asks.
type confirmation struct {
	from  uint64
	terms []uint64
}

// confirm calls done with a read point that is later than this call. The confirmation is
// that of the server on whose behalf it is called, if it isn't this one: it counts
// for the reads that it was given with, however late it comes.
func (c *confirmer) confirm(asker confirmation, deadline int64, done func(readPoint, error)) {
	e := c.r.lead.published.Load()
	if e != nil && (c.r.alone() || c.confirmedBy(e, asker)) {
		done(c.r.point(e), nil)
		return
	}
	c.mu.Lock()
	c.next = append(c.next, unconfirmed{deadline, done})
	var failed []unconfirmed
	if c.current == nil {
		failed = c.begin()
	}
	c.mu.Unlock()
	failReads(failed, fault.LeaderChanged)
}

// confirmedBy reports whether the asker and this leader are a majority, and
// neither knows a later term.
func (c *confirmer) confirmedBy(e *epoch, asker confirmation) bool {
	if !noneLater(asker.terms, e.terms) {
		return false
	}
	return c.r.quorum(func(id uint64) bool { return id == c.r.cfg.ID || id == asker.from })
}

// noneLater reports whether known, of one server, has no term beyond those of a
// leader.
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
		terms[i] = g.term.Load()
	}
	return terms
}

// point is taken before the question is sent: it covers everything acknowledged
// before.
func (r *Replica) point(e *epoch) readPoint {
	p := readPoint{epoch: e.number, committed: r.seq.Committed(), indexes: make([]uint64, len(r.groups))}
	for i, g := range r.groups {
		p.indexes[i] = g.commit.Load()
	}
	return p
}

// begin starts a round for all waiting reads, or returns them if this server
// doesn't stamp any more. With mu held.
func (c *confirmer) begin() (failed []unconfirmed) {
	waiting := c.next
	c.next = nil
	e := c.r.lead.published.Load()
	if e == nil {
		return waiting
	}
	c.rounds++
	c.current = &round{
		ask:     Confirm{Round: c.rounds, Terms: e.terms, Generation: c.r.generation()},
		asked:   c.r.now(),
		acks:    map[uint64]bool{c.r.cfg.ID: true},
		point:   c.r.point(e),
		waiting: waiting,
	}
	c.send()
	return nil
}

func (c *confirmer) send() {
	for _, peer := range c.r.Peers() {
		if !c.current.acks[peer] {
			ask := c.current.ask
			c.r.cfg.Network.Send(peer, Packet{Confirm: &ask})
		}
	}
}

func (c *confirmer) acked(from uint64, a *ConfirmAck) { c.decided(c.count(from, a)) }

// decided lets the reads of a round go on, if it isn't nil, and fails others.
func (c *confirmer) decided(confirmed *round, failed []unconfirmed) {
	if confirmed != nil {
		for _, read := range confirmed.waiting {
			read.done(confirmed.point, nil)
		}
	}
	failReads(failed, fault.LeaderChanged)
}

// count takes an answer and decides.
func (c *confirmer) count(from uint64, a *ConfirmAck) (confirmed *round, failed []unconfirmed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cur := c.current
	if cur == nil || cur.ask.Round != a.Round || !a.OK {
		// A refusal comes with a later term, which Raft acts upon.
		return nil, nil
	}
	cur.acks[from] = true
	return c.decide()
}

// decide ends the round and returns it, if a majority has confirmed it, and begins the next one. With mu held.
func (c *confirmer) decide() (confirmed *round, failed []unconfirmed) {
	cur := c.current
	if !c.r.quorum(func(id uint64) bool { return cur.acks[id] }) {
		return nil, nil
	}
	c.current = nil
	if len(c.next) > 0 {
		failed = c.begin()
	}
	return cur, failed
}

// tick repeats questions that may have been lost, and fails reads that have
// timed out. It decides, too: when all have answered and the voters then become fewer, no answer comes any more.
func (c *confirmer) tick() {
	now := c.r.now()
	timedOut := func(u unconfirmed) bool { return u.deadline <= now }
	c.mu.Lock()
	var late, failed []unconfirmed
	var confirmed *round
	c.next, late = extract(c.next, timedOut)
	if cur := c.current; cur != nil {
		var more []unconfirmed
		cur.waiting, more = extract(cur.waiting, timedOut)
		late = append(late, more...)
		if now-cur.asked >= 2 {
			cur.asked = now
			if confirmed, failed = c.decide(); confirmed == nil {
				c.send()
			}
		}
	}
	c.mu.Unlock()
	c.decided(confirmed, failed)
	failReads(late, fault.Timeout)
}

// end removes all reads. Later ones find that this server doesn't stamp.
func (c *confirmer) end() []unconfirmed {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.next
	if c.current != nil {
		all = append(c.current.waiting, all...)
	}
	c.current, c.next = nil, nil
	return all
}

func failReads(reads []unconfirmed, err error) {
	for _, read := range reads {
		read.done(readPoint{}, err)
	}
}

// answerConfirm promises nothing about the future: it states the terms known
// after the question arrived. Terms are published before votes leave (invariant
// 3).
func (r *Replica) answerConfirm(ask *Confirm) *ConfirmAck {
	return &ConfirmAck{Round: ask.Round, OK: ask.Generation == r.generation() && noneLater(r.known(), ask.Terms)}
}
