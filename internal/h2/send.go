package h2

import (
	"google.golang.org/grpc/mem"
)

// queue is streams in the order in which they take turns. They are linked, so that one that ends
// leaves at once: a client that opens no window would have the queue keep all that it resets.
type queue struct{ first, last *stream }

// turn is a stream's place in a queue.
type turn struct {
	queued   bool
	next     *stream
	previous *stream
}

func (q *queue) push(st *stream) {
	if st.turn.queued {
		return
	}
	st.turn = turn{queued: true, previous: q.last}
	if q.last == nil {
		q.first = st
	} else {
		q.last.turn.next = st
	}
	q.last = st
}

func (q *queue) pop() *stream {
	st := q.first
	if st != nil {
		q.remove(st)
	}
	return st
}

func (q *queue) remove(st *stream) {
	t := st.turn
	if !t.queued {
		return
	}
	if t.previous == nil {
		q.first = t.next
	} else {
		t.previous.turn.next = t.next
	}
	if t.next == nil {
		q.last = t.previous
	} else {
		t.next.turn.previous = t.previous
	}
	st.turn = turn{}
}

// weight is what a message that waits counts for beside its bytes: about what its stream takes.
const weight = 1 << 10

// outgoing is a message on its way into out.
type outgoing struct {
	prefix [5]byte
	rest   []byte // of the prefix, and then of the piece before next
	pieces mem.BufferSlice
	next   int
	left   int // bytes, of all
}

func (m *outgoing) set(compressed bool, data mem.BufferSlice) {
	n := data.Len()
	m.prefix = [5]byte{0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
	if compressed {
		m.prefix[0] = 1
	}
	m.rest, m.pieces, m.next, m.left = m.prefix[:], data, 0, n+len(m.prefix)
}

// appendTo moves n bytes of the message, which has them.
func (m *outgoing) appendTo(b []byte, n int) []byte {
	m.left -= n
	for n > 0 {
		if len(m.rest) == 0 {
			m.rest = m.pieces[m.next].ReadOnlyData()
			m.next++
			continue
		}
		k := min(n, len(m.rest))
		b = append(b, m.rest[:k]...)
		m.rest, n = m.rest[k:], n-k
	}
	if m.left == 0 {
		m.free()
	}
	return b
}

func (m *outgoing) free() {
	m.pieces.Free()
	m.pieces, m.rest, m.left = nil, nil, 0
}

// send moves of a stream's message as much into out as the windows and the room allow, one
// frame at most if others wait too, and then its trailers. With mu held.
func (c *conn) send(st *stream) {
	for st.out.left > 0 {
		n := min(int64(st.out.left), int64(c.frameLimit), st.sendWindow)
		if n <= 0 {
			return // until the client gives the stream more
		}
		if c.sendWindow <= 0 || len(c.out) > maxUnsent {
			c.blocked.push(st)
			return
		}
		n = min(n, c.sendWindow)
		c.out = appendHeader(c.out, int(n), frameData, 0, st.id)
		c.out = st.out.appendTo(c.out, int(n))
		c.sendWindow -= n
		st.sendWindow -= n
		c.pending -= n
		if st.out.left == 0 {
			c.pending -= weight
		}
		c.budget.earn(int(n / bytesEarn))
		c.sent = true
		if st.out.left > 0 && c.blocked.first != nil {
			c.blocked.push(st)
			return
		}
	}
	if st.trailers != nil {
		c.sendHeaders(st.trailers, flagEndStream, st.id)
		c.sent = true
		c.finished(st)
	} else {
		st.wake()
	}
}

// pump lets the streams that wait for the connection take turns. With mu held.
func (c *conn) pump() {
	for c.sendWindow > 0 && len(c.out) <= maxUnsent {
		st := c.blocked.pop()
		if st == nil {
			return
		}
		c.send(st)
	}
}

// put makes a message the next to be sent, behind the headers. With mu held.
func (c *conn) put(st *stream, compressed bool, data mem.BufferSlice) {
	st.begin()
	st.out.set(compressed, data)
	c.pending += int64(st.out.left) + weight
	c.budget.earn(perMessage)
	c.send(st)
}

// discard drops what hasn't been sent. With mu held.
func (c *conn) discard(st *stream) {
	if st.out.left > 0 {
		c.pending -= int64(st.out.left) + weight
		st.out.free()
	}
}

// finished removes a stream whose trailers are in out. With mu held.
func (c *conn) finished(st *stream) {
	if !st.remoteEnded { // the rest of the request isn't wanted
		c.out = appendReset(c.out, st.id, noError)
		c.straying = min(c.straying+st.recvWindow, maxStraying)
	}
	c.remove(st)
}

// remove forgets a stream. With mu held.
func (c *conn) remove(st *stream) {
	st.closed = true
	delete(c.streams, st.id)
	c.blocked.remove(st)
	c.discard(st)
	c.release(st)
	c.start(st)
	if len(c.streams) == 0 {
		c.idleSince = c.heard
	}
	st.wake()
}
