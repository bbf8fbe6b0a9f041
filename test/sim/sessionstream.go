package sim

import (
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/session"
)

// sessionStream is a connection that carries a session: first in, first out in both
// directions, until it breaks.
type sessionStream struct {
	cl      *sessionClient
	life    *life
	host    *sessionHost // nil until it is open
	closed  bool         // the server knows that it is broken
	arrived []func()     // at the server, which may be paused

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

// ask sends requests to the server.
func (st *sessionStream) ask(items []session.Item, answered uint64) {
	l := st.life
	st.up.send(st.cl.c.loop, "session asks", l.sv.id, uint64(st.cl.id), func() {
		// A pause that is cut short must not let one message overtake another.
		st.arrived = append(st.arrived, func() {
			if st.host != nil {
				st.host.take(items, answered)
			}
		})
		l.now("session asks", uint64(st.cl.id), func() {
			first := st.arrived[0]
			st.arrived = st.arrived[1:]
			first()
		})
	})
}

// down sends words to the client.
func (st *sessionStream) down(words []said) {
	st.toClient.send(st.cl.c.loop, "session hears", st.life.sv.id, uint64(st.cl.id), func() {
		if st.cl.stream == st && !st.life.ended {
			st.cl.hear(words)
		}
	})
}

// hangUp is the client's. The server may hear of it late, and of what was sent
// before it, or not.
func (st *sessionStream) hangUp() {
	c := st.cl.c
	if c.loop.chance(2) {
		for i := range st.up.queue {
			st.up.queue[i] = func() {}
		}
	}
	st.life.after(c.loop.between(0, 300*time.Millisecond), "session hangs up", uint64(st.cl.id), func() {
		st.closed = true
		if st.host != nil {
			st.host.end(errLost)
		}
	})
}

// grantSession makes the lease of a new session; if it is there, it was made before.
func (l *life) grantSession(id, ttl int64, done func(proto.Message, error)) {
	l.write(command.LeaseGrant, &pb.LeaseGrantRequest{ID: id, TTL: ttl}, true, done)
}

func (l *life) renewSession(id int64, done func(proto.Message, error)) {
	l.keepAlive(&op{client: int(id)}, id, done)
}
