package sim

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/session"
	"github.com/stoa-kv/stoa/internal/session/host"
)

// sessionStream is a connection that carries a session: first in, first out in both
// directions, until it breaks.
type sessionStream struct {
	cl      *sessionClient
	life    *life
	id      int64
	session *host.Session // nil until it is open
	closed  bool          // the server knows that it is broken
	arrived []func()      // at the server, which may be paused
	said    []said        // not sent yet
	again   uint64        // requests up to here may come a second time
	taken   map[uint64]*takenIn
	refused bool   // the last answer was that a rate is exceeded
	user    uint64 // whose session it is, by the credential
	knew    uint64 // the rights that the server knew when the session was opened, by their revision

	up, toClient pipe
}

// pipe is one direction.
type pipe struct {
	queue []func()
	last  time.Duration // when the last in the queue arrives
}

// send lets run happen at the other end, after all that was sent before.
func (p *pipe) send(l *loop, what string, a, b uint64, run func()) {
	p.queue = append(p.queue, run)
	slowest := 2 * time.Millisecond
	if l.chance(2) { // faster than the servers among each other
		slowest = 200 * time.Microsecond
	}
	p.last = max(p.last, l.now+l.between(20*time.Microsecond, slowest))
	l.after(p.last-l.now, what, a, b, func() {
		first := p.queue[0]
		p.queue = p.queue[1:]
		first()
	})
}

// ask sends requests to the server, and what they are filled in from.
func (st *sessionStream) ask(items []session.Item, from []*asking, answered uint64) {
	l := st.life
	st.up.send(st.cl.c.loop, "session asks", l.sv.id, uint64(st.cl.id), func() {
		// A pause that is cut short must not let one message overtake another.
		st.arrived = append(st.arrived, func() {
			if st.session != nil { // its window is larger than the client's: it takes them at once
				st.know(from)
				if len(items) > 0 {
					st.takeIn(from, items[0].Seq)
				}
				_ = st.session.Take(context.Background(), items, answered)
			}
		})
		l.now("session asks", uint64(st.cl.id), func() {
			first := st.arrived[0]
			st.arrived = st.arrived[1:]
			first()
		})
	})
}

// said is a message to the client: a reply, events, or with end the last.
type said struct {
	seq      uint64
	rev      int64
	response proto.Message
	err      error
	end      bool
	event    *pb.WatchResponse // of the watch that request seq created
}

// Reply implements session.Sink, as the services' does that encodes.
func (st *sessionStream) Reply(op *session.Op) {
	r := op.Request.(*session.Request)
	st.decided(op.Seq, op.Err)
	w := said{seq: op.Seq, rev: op.Revision, response: r.Response, err: op.Err}
	head := &pb.ResponseHeader{Revision: op.Revision}
	switch {
	case op.Err != nil:
	case r.Kind == stoapb.Kind_PUT && r.Response == nil:
		w.response = &pb.PutResponse{Header: head}
	case r.Found != nil:
		w.response = r.Found.Message()
	case r.Kind == stoapb.Kind_RANGE && r.Response == nil && r.Message == nil:
		resp := &pb.RangeResponse{Header: head}
		if r.Kv.Exists() {
			resp.Kvs, resp.Count = append(resp.Kvs, r.Kv.Message()), 1
		}
		w.response = resp
	}
	st.said = append(st.said, w)
}

// Event implements session.Sink.
func (st *sessionStream) Event(seq uint64, r *pb.WatchResponse) {
	st.said = append(st.said, said{seq: seq, event: r})
}

// Placement implements session.Sink. Clients here don't ask for it.
func (st *sessionStream) Placement(*stoapb.PartitionMap) {}

// Bytes implements session.Sink; a message counts as one.
func (st *sessionStream) Bytes() int { return len(st.said) }

// Flush implements session.Sink.
func (st *sessionStream) Flush() error {
	if len(st.said) > 0 {
		st.down(st.said)
		st.said = nil
	}
	return nil
}

// down sends messages to the client.
func (st *sessionStream) down(words []said) {
	st.toClient.send(st.cl.c.loop, "session hears", st.life.sv.id, uint64(st.cl.id), func() {
		if st.cl.stream == st && !st.life.ended {
			st.cl.hear(words)
		}
	})
}

// hangUp closes the client's side. The server may learn of it late, and may or
// may not receive what was sent before it.
func (st *sessionStream) hangUp() {
	c := st.cl.c
	if c.loop.chance(2) {
		for i := range st.up.queue {
			st.up.queue[i] = func() {}
		}
	}
	st.life.after(c.loop.between(0, 300*time.Millisecond), "session hangs up", uint64(st.cl.id), func() {
		st.closed = true
		if st.session != nil {
			st.session.Close()
		}
	})
}
