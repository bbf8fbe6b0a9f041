package replica

import (
	"errors"
	"sync"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// readBatch asks the leader for read points, one question at a time: reads that
// come while one is in flight share the next. A question carries the terms that
// this server knows, as the answer to a Confirm does: among three servers, that
// and the leader's own terms are a majority, and one round trip suffices.
type readBatch struct {
	r     *Replica
	mu    sync.Mutex
	busy  bool            // a question is in flight
	asked []forwardedRead // the reads that it is for
	next  []forwardedRead
}

type forwardedRead struct {
	parts    placement.Set
	deadline int64 // tick
	done     func(error)
}

func (b *readBatch) readPoint(read forwardedRead) {
	b.mu.Lock()
	b.next = append(b.next, read)
	ask := !b.busy
	b.busy = true
	b.mu.Unlock()
	if ask {
		b.ask()
	}
}

// ask sends one question for all waiting reads, if there are any.
func (b *readBatch) ask() {
	b.mu.Lock()
	b.asked, b.next = b.next, nil
	b.busy = len(b.asked) > 0
	var parts placement.Set
	for _, read := range b.asked {
		parts |= read.parts
	}
	b.mu.Unlock()
	if parts == 0 {
		return
	}
	b.r.calls.start(&call{
		method:   methodReadPoint,
		body:     encodeQuestion(parts, b.r.known()),
		deadline: b.r.deadline(),
		local: func() {
			b.leading()
			b.ask()
		},
		done: func(body []byte, err error) {
			b.answered(parts, body, err)
			b.ask()
		},
	})
}

// take returns the reads of the question that was answered.
func (b *readBatch) take() []forwardedRead {
	b.mu.Lock()
	defer b.mu.Unlock()
	reads := b.asked
	b.asked = nil
	return reads
}

// expire fails reads that have timed out.
func (b *readBatch) expire(now int64) {
	var asked, next []forwardedRead
	late := func(read forwardedRead) bool { return read.deadline <= now }
	b.mu.Lock()
	b.asked, asked = extract(b.asked, late)
	b.next, next = extract(b.next, late)
	b.mu.Unlock()
	for _, read := range append(asked, next...) {
		read.done(fault.Timeout)
	}
}

// leading serves the reads of a server that has become the leader itself. If a
// snapshot has replaced this replica, which then never leads, they are asked by
// the new one.
func (b *readBatch) leading() {
	there := b.r.calls.r.Load() == b.r
	for _, read := range b.take() {
		if there {
			b.r.readPoint(read.parts, confirmation{}, read.deadline, read.done)
		} else {
			read.done(fault.TimeoutLeaderFail)
		}
	}
}

// answered waits until the leader's read point has been applied here.
func (b *readBatch) answered(parts placement.Set, body []byte, err error) {
	reads := b.take()
	var points []Closed
	if err == nil {
		points, err = decodePoints(body, parts)
	}
	if errors.Is(err, fault.Moved) { // for one of them, of a generation that has ended: ReadPoint of the next says for which
		err = fault.LeaderChanged
	}
	if err != nil {
		for _, read := range reads {
			read.done(err)
		}
		return
	}
	r := b.r
	at := make([]Closed, len(r.groups))
	for _, m := range points {
		at[m.Group] = m
	}
	for _, read := range reads {
		r.await(read.parts, func(p int) until { return until{index: at[p].Index} }, read.deadline, func(err error) {
			if err == nil {
				for p := range read.parts.Each() {
					r.reached(at[p])
				}
			}
			read.done(err)
		})
	}
}

// reached makes a closed revision this server's own, its index having been
// applied. It is not left to raiseClosed: the group's loop publishes the index
// first and raises the closed revision later, and a read in between must not
// see the old one.
func (r *Replica) reached(m Closed) {
	r.closed[m.Group].raise(m.Revision)
	r.reportClosed(m.Group)
}

// answerReadPoint waits here, so that the asking server needs to know one
// index and one closed revision per partition.
func (r *Replica) answerReadPoint(from uint64, body []byte, reply func([]byte, error)) {
	parts, known, err := decodeQuestion(body, r.all())
	if errors.Is(err, fault.Moved) {
		reply(nil, fault.Moved)
		return
	}
	if err != nil {
		reply(nil, fault.Internal)
		return
	}
	r.readPoint(parts, confirmation{from, known}, r.deadline(), func(err error) {
		if err != nil {
			reply(nil, err)
			return
		}
		var points []Closed
		for p := range parts.Each() {
			points = append(points, r.groups[p].closedHere())
		}
		reply(encodePoints(points), nil)
	})
}
