package keepalive

import "slices"

// A Hub is the keep-alives of all local clients.
type Hub struct {
	wake     func() // there is something to Take
	leases   map[int64]*lease
	programs map[any]*program
	turns    []*program // that have leases in their queues: each has its turn
	streams  map[*Stream]struct{}
}

// program is the streams of one local client.
type program struct {
	by      any
	streams int
	queue   []*lease // whose renewals are to be sent, in order, unless another program's turn came first
}

// lease is one that somebody has asked to renew.
type lease struct {
	id   int64
	sent bool
	// asked share the renewal that is in the queues of their programs or under way; later came after it was sent.
	asked, later []*request
}

// request is one of a stream's, until its answer is taken.
type request struct {
	stream *Stream
	answer []byte
}

// New makes a hub. wake is called whenever there is something to Take.
func New(wake func()) *Hub {
	return &Hub{wake: wake, leases: map[int64]*lease{}, programs: map[any]*program{}, streams: map[*Stream]struct{}{}}
}

// Stats are numbers for metrics.
type Stats struct{ Streams, Leases int }

// Stats counts open streams, and leases whose renewal is waited for.
func (h *Hub) Stats() Stats { return Stats{len(h.streams), len(h.leases)} }

// Take is the next lease to renew, which is under way then, until Renewed or Lost.
func (h *Hub) Take() (id int64, ok bool) {
	for len(h.turns) > 0 {
		p := h.turns[0]
		h.turns = h.turns[1:]
		l := h.next(p)
		if len(p.queue) > 0 {
			h.turns = append(h.turns, p)
		}
		if l != nil {
			l.sent = true
			return l.id, true
		}
	}
	h.turns = nil
	return 0, false
}

// next takes a lease out of a program's queue that waits for its renewal; nil if there is none.
func (h *Hub) next(p *program) *lease {
	for len(p.queue) > 0 {
		l := p.queue[0]
		if p.queue = p.queue[1:]; len(p.queue) == 0 {
			p.queue = nil
		}
		switch {
		case l.sent || h.leases[l.id] != l: // in another program's turn
		case l.wanted():
			return l
		default:
			delete(h.leases, l.id)
		}
	}
	return nil
}

// wanted reports whether a client is still there.
func (l *lease) wanted() bool {
	l.asked = slices.DeleteFunc(l.asked, func(r *request) bool { return r.stream.over() })
	return len(l.asked) > 0
}

// Renewed gives the member's answer for the lease that was taken.
func (h *Hub) Renewed(id int64, answer []byte) {
	for _, r := range h.settle(id) {
		if !r.stream.over() {
			r.answer = answer
			r.stream.ring()
		}
	}
}

// Lost has the streams that wait for a renewal that was taken end with an error: whether the lease
// was renewed is unknown, as when a client's own stream breaks.
func (h *Hub) Lost(id int64, err error) {
	for _, r := range h.settle(id) {
		r.stream.Fail(err)
	}
}

// settle ends a renewal, and puts the next one of its lease into the queues of those that ask for it.
func (h *Hub) settle(id int64) (asked []*request) {
	l := h.leases[id]
	if l == nil || !l.sent {
		return nil
	}
	asked = l.asked
	l.sent, l.asked, l.later = false, l.later, nil
	if len(l.asked) == 0 {
		delete(h.leases, id)
		return asked
	}
	for _, r := range l.asked {
		h.enqueue(l, r.stream.of)
	}
	return asked
}

func (h *Hub) enqueue(l *lease, p *program) {
	if p.queue = append(p.queue, l); len(p.queue) == 1 {
		h.turns = append(h.turns, p)
	}
	h.wake()
}

// Fail has all streams end with an error.
func (h *Hub) Fail(err error) {
	for st := range h.streams {
		st.Fail(err)
	}
}
