package h2

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc/status"
)

// Room is memory for what is arriving: messages, calls, and large headers. Its methods are called by any number of
// goroutines, with locks held: they don't wait.
type Room interface {
	// Take takes so many bytes, or says with a gRPC status that there are none.
	Take(n int) error
	// Give gives them back.
	Give(n int)
}

// space is Options.Room, and the error of the last one for whom it had none. What a call asks for passes through take.
type space struct {
	Room
	refused atomic.Pointer[error]
}

func (s *space) take(n int) error {
	err := s.Take(n)
	if err != nil {
		s.refused.Store(&err)
	}
	return err
}

const (
	// leastArriving is the length, in bytes, above which room is asked for a message, and freeParts how many calls of a connection
	// may wait for the rest of a smaller one without.
	leastArriving = 16 << 10
	freeParts     = 16
	// arriveWithin is how long a message may take to arrive when there is no room for another
	// like it, or there was none for any since.
	arriveWithin = 10 * time.Second
	// freeCalls is how many unary calls of a connection may wait for their messages without room for themselves: they
	// take up to 160 KiB, of any number of connections.
	// So many may wait for their client to take their answers, likewise.
	freeCalls = 32
)

// arrival is the room that a call has: for itself until its message is there, for its headers until it ends, for its
// messages until its handler takes them. Guarded by conn.mu.
type arrival struct {
	room    *space // of messages; nil: there is always some
	call    int    // the headers', and perhaps the call's own
	held    int    // of messages
	late    *time.Timer
	refused *error // space.refused when late was set
}

// admit takes room for a message of n bytes, all of them at once: if each took more as it arrives,
// many could begin, and none end. A small one needs none, unless many calls of the connection wait.
func (a *arrival) admit(n int, many bool) error {
	if a.room == nil || n <= leastArriving && !many {
		return nil
	}
	if err := a.room.take(n); err != nil {
		return err
	}
	a.held += n
	return nil
}

// release gives the messages' room back.
func (a *arrival) release() {
	if a.held > 0 {
		a.room.Give(a.held)
		a.held = 0
	}
	if a.late != nil {
		a.late.Stop()
	}
}

// release gives the room of a call back that ends. With mu held.
func (c *conn) release(st *stream) {
	a := &st.in.arrival
	a.release()
	if a.call > 0 {
		c.holder(st).Give(a.call)
		a.call = 0
	}
	if st.in.unsent {
		st.in.unsent = false
		c.unsents--
	}
	if st.in.homeless {
		st.in.homeless = false
		c.homeless--
	}
}

// lasts has a call whose message is there leave the room of what is arriving: it may last as a stream does, while its handler runs and
// until the client takes the answer. The call itself is counted with its handler. With mu held.
func (c *conn) lasts(st *stream) error {
	a := &st.in.arrival
	if a.call == 0 {
		return nil
	}
	n, room := st.req.large(), c.holder(st)
	room.Give(a.call - n)
	if a.call = n; n == 0 || room == c.s.streams {
		return nil
	}
	if err := c.s.streams.take(n); err != nil {
		return err
	}
	room.Give(n)
	st.in.lasts = true
	return nil
}

// unsent has the call of an answer that waits for the client find room, if many others of the connection do: it isn't counted anywhere
// else, once its handler has returned. While there is no room the connection begins no calls. With mu held.
func (c *conn) unsent(st *stream) {
	if c.dead || st.closed || st.out.left == 0 || c.s.streams == nil { // what a dead connection took would stay taken
		return
	}
	st.in.unsent = true
	if c.unsents++; c.unsents <= freeCalls {
		return
	}
	a := &st.in.arrival
	n := max((1+st.req.size/weight)*weight-a.call, 0)
	if c.s.streams.take(n) != nil {
		st.in.homeless = true
		c.homeless++
		return
	}
	a.call += n
	st.in.lasts = true // the headers do already, if there is room for them
}

// holder is whose the room is that a call has. With mu held.
func (c *conn) holder(st *stream) *space {
	if st.in.lasts {
		return c.s.streams
	}
	return c.roomOf(st.req)
}

// large is the size of the headers of a request, if that is much.
func (r *request) large() int {
	if r.size < leastSize {
		return 0
	}
	return r.size
}

// holds is what a call is to find room for: large headers, and itself with any headers, in steps of weight, if many others of the
// connection wait for their messages. Such calls aren't counted anywhere else. With mu held.
func (c *conn) holds(r *request) int {
	switch {
	case c.roomOf(r) == nil:
		return 0
	case r.method.unary != nil && c.begun >= freeCalls:
		return (1 + r.size/weight) * weight
	default:
		return r.large()
	}
}

// roomOf is where a call finds that at its beginning. Streams may last: their headers would leave no room for messages.
func (c *conn) roomOf(r *request) *space {
	if r.method.unary == nil {
		return c.s.streams
	}
	return c.s.room
}

// roomFor takes the room for what a call holds, or says why there is none.
func (c *conn) roomFor(r *request, n int) *status.Status {
	if n > 0 {
		if err := c.roomOf(r).take(n); err != nil {
			return status.Convert(err)
		}
	}
	return nil
}

// start notes that the handler of a unary call runs, or never will. With mu held.
func (c *conn) start(st *stream) {
	if st.begun {
		st.begun = false
		c.begun--
	}
}

// watch ends a unary call that holds room that others need, and whose message doesn't arrive. With mu held.
func (c *conn) watch(st *stream) {
	if a := &st.in.arrival; a.held+a.call > 0 && a.late == nil && st.begun {
		a.refused = a.room.refused.Load()
		a.late = time.AfterFunc(c.s.o.arriveWithin, func() { c.late(st) })
	}
}

func (c *conn) late(st *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &st.in.arrival
	n := a.held + a.call
	if n == 0 || !st.begun {
		return
	}
	err := a.inTheWay(n)
	if err == nil {
		a.late.Reset(c.s.o.arriveWithin)
		return
	}
	c.release(st)
	st.in.part, st.in.ready = nil, nil
	st.failure, st.started = err, true
	c.start(st)
	go st.runUnary()
}

// inTheWay says why n bytes are to be given back: there are none for another call, or there were none for one since it was asked last, which may
// have asked for more.
func (a *arrival) inTheWay(n int) error {
	if now := a.room.refused.Load(); now != a.refused {
		return *now
	}
	err := a.room.Take(n)
	if err == nil {
		a.room.Give(n)
	}
	return err
}
