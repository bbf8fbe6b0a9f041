package replica

import (
	"sync"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// readBatch asks the leader for read points, one question at a time: reads
// that come while one is under way share the next. A question carries the terms
// that this server knows, as the answer to a Confirm does: among three servers, that
// and the leader's own word are a majority, and one round trip is all it takes.
type readBatch struct {
	r       *Replica
	mu      sync.Mutex
	current bool
	next    []forwardedRead
}

type forwardedRead struct {
	parts placement.Set
	done  func(error)
}

func (b *readBatch) readPoint(parts placement.Set, done func(error)) {
	b.mu.Lock()
	b.next = append(b.next, forwardedRead{parts, done})
	ask := !b.current
	b.current = true
	b.mu.Unlock()
	if ask {
		b.ask()
	}
}

// ask sends one question for all that wait.
func (b *readBatch) ask() {
	b.mu.Lock()
	reads := b.next
	b.next = nil
	b.current = len(reads) > 0
	b.mu.Unlock()
	if len(reads) == 0 {
		return
	}
	var parts placement.Set
	for _, r := range reads {
		parts |= r.parts
	}
	b.r.calls.start(&call{
		method: methodReadPoint,
		body:   encodeQuestion(parts, b.r.known()),
		local: func() {
			b.leading(reads)
			b.ask()
		},
		done: func(body []byte, err error) {
			b.answered(reads, parts, body, err)
			b.ask()
		},
	})
}

// leading takes up the reads of a server that has become the leader itself. If a
// snapshot has put another replica in this one's place, which never leads, they are
// to be asked there.
func (b *readBatch) leading(reads []forwardedRead) {
	there := b.r.calls.r.Load() == b.r
	for _, read := range reads {
		if there {
			b.r.ReadPoint(read.parts, read.done)
		} else {
			read.done(fault.TimeoutLeaderFail)
		}
	}
}

// answered waits until what the leader named has been applied here.
func (b *readBatch) answered(reads []forwardedRead, parts placement.Set, body []byte, err error) {
	var points []Closed
	if err == nil {
		points, err = decodePoints(body, parts)
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
		r.await(read.parts, func(err error) {
			if err == nil {
				for p := range read.parts.Each() {
					r.reached(at[p])
				}
			}
			read.done(err)
		}, func(p int) (uint64, int64) { return at[p].Index, 0 })
	}
}

// reached makes a closed revision this server's own, its index having been
// applied. It is not left to settleClosed: the group's loop publishes the index
// first and settles a moment later, and a read must not slip in between.
func (r *Replica) reached(m Closed) {
	c := &r.closed[m.Group]
	if before := c.revision.Load(); c.raise(m.Revision) > before {
		r.announce(m.Group, m.Revision)
	}
}

// answerReadPoint waits here, so that the asking server needs to know one
// index and one closed revision per partition.
func (r *Replica) answerReadPoint(from uint64, body []byte, reply func([]byte, error)) {
	parts, known, err := decodeQuestion(body, r.cfg.Map.All())
	if err != nil {
		reply(nil, fault.Internal)
		return
	}
	r.readPoint(parts, vote{from, known}, func(err error) {
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
