package h2

import "time"

// Room is memory for messages that are arriving. Its methods are called by any number of
// goroutines, with locks held: they don't wait.
type Room interface {
	// Take takes so many bytes, or says with a gRPC status that there are none.
	Take(n int) error
	// Give gives them back.
	Give(n int)
}

const (
	// leastArriving is the length, in bytes, above which room is asked for a message: calls
	// without one may hold as much.
	leastArriving = 16 << 10
	// arriveWithin is how long a message may take to arrive when there is no room for another
	// like it.
	arriveWithin = 10 * time.Second
)

// arrival is the room that the messages of a call have until its handler takes them. Guarded by
// conn.mu.
type arrival struct {
	room Room // nil: there is always some
	held int
	late *time.Timer
}

// admit takes room for a message of n bytes, all of them at once: if each took more as it arrives,
// many could begin, and none end.
func (a *arrival) admit(n int) error {
	if a.room == nil || n <= leastArriving {
		return nil
	}
	if err := a.room.Take(n); err != nil {
		return err
	}
	a.held += n
	return nil
}

// release gives the room back.
func (a *arrival) release() {
	if a.held == 0 {
		return
	}
	a.room.Give(a.held)
	a.held = 0
	if a.late != nil {
		a.late.Stop()
	}
}

// watch ends a call whose message holds room that others need, and doesn't arrive. With mu held.
func (c *conn) watch(st *stream) {
	if a := &st.in.arrival; a.held > 0 && a.late == nil {
		a.late = time.AfterFunc(c.s.o.arriveWithin, func() { c.late(st) })
	}
}

func (c *conn) late(st *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &st.in.arrival
	if a.held == 0 || st.started || st.closed {
		return
	}
	err := a.room.Take(a.held)
	if err == nil {
		a.room.Give(a.held)
		a.late.Reset(c.s.o.arriveWithin)
		return
	}
	a.release()
	st.in.part, st.in.ready = nil, nil
	st.failure, st.started = err, true
	go st.runUnary()
}
