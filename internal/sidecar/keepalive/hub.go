package keepalive

import (
	"slices"

	"github.com/stoa-kv/stoa/internal/sidecar/fair"
)

// A Hub is the keep-alives of all local clients.
type Hub struct {
	wake    func() // there is something to Take
	leases  map[int64]*lease
	queue   fair.Queue[*lease] // whose renewals are to be sent, unless another program's turn came first
	streams map[*Stream]struct{}
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
	return &Hub{wake: wake, leases: map[int64]*lease{}, streams: map[*Stream]struct{}{}}
}

// Stats are numbers for metrics.
type Stats struct{ Streams, Leases int }

// Stats counts open streams, and leases whose renewal is waited for.
func (h *Hub) Stats() Stats { return Stats{len(h.streams), len(h.leases)} }

// Waiting reports whether there may be something to Take.
func (h *Hub) Waiting() bool { return h.queue.Len() > 0 }

// Take is the next lease to renew, which is under way then, until Renewed or Lost.
func (h *Hub) Take() (id int64, ok bool) {
	l, ok := h.queue.Pop(h.due)
	if !ok {
		return 0, false
	}
	l.sent = true
	return l.id, true
}

// due reports whether a lease out of a program's queue waits for its renewal, and forgets one that nobody wants.
func (h *Hub) due(l *lease) bool {
	if l.sent || h.leases[l.id] != l { // in another program's turn
		return false
	}
	if !l.wanted() {
		delete(h.leases, l.id)
		return false
	}
	return true
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
		h.enqueue(l, r.stream)
	}
	return asked
}

func (h *Hub) enqueue(l *lease, st *Stream) {
	h.queue.Push(st.by, l)
	h.wake()
}

// Fail has all streams end with an error.
func (h *Hub) Fail(err error) {
	for st := range h.streams {
		st.Fail(err)
	}
}
