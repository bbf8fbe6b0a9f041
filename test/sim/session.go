package sim

import (
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/session"
	"github.com/stoa-kv/stoa/internal/session/host"
	"github.com/stoa-kv/stoa/internal/watch"
)

// In every fourth run clients with sessions take part. What carries them out on the
// servers is what does so in node, package session/host; around it is the loop, in the
// place of goroutines and timers.

func (l *life) newSessions() *host.Sessions {
	return host.New(around{l}, host.Config{
		RequestTimeout: requestTicks * tickInterval,
		FlushBytes:     gatherReplies,
		MergeBytes:     2 << 10, // little, so that watches have to wait for one that is behind
		Counts:         &l.sv.c.inSessions,
		Limits:         l.limits,
		Ended: func(sink session.Sink, why error) {
			st := sink.(*sessionStream)
			l.sv.c.loop.printf("session %d ends on server %d: %v", st.id, l.sv.id, why)
			st.down([]said{{end: true, err: why}})
		},
	})
}

// gatherReplies is the number of replies in one message.
const gatherReplies = 5

// around is what surrounds the sessions of a process.
type around struct{ l *life }

// State implements host.Server.
func (a around) State() *host.State { return &a.l.core.state }

// Hub implements host.Server.
func (a around) Hub() *watch.Hub { return a.l.hub }

// Now implements host.Server.
func (a around) Now() time.Time { return a.l.clock() }

// Go implements host.Server.
func (a around) Go(f func()) { a.l.after(a.l.between(0, 100*time.Microsecond), "session", 0, f) }

// After implements host.Server.
func (a around) After(d time.Duration, f func()) (stop func()) {
	stopped := false
	a.l.after(d, "session again", 0, func() {
		if !stopped {
			f()
		}
	})
	return func() { stopped = true }
}

// Renew implements host.Server.
func (a around) Renew(id int64, user uint64, done func(error)) {
	a.l.renewSession(id, user, func(_ proto.Message, err error) { done(err) })
}

// Grows implements host.Server.
func (a around) Grows(int) {}

// Unreadable implements host.Server.
func (a around) Unreadable(id int64, err error) {
	a.l.sv.c.fail("I4", "session %d on server %d: %v", id, a.l.sv.id, err)
}

// openSession opens a session on this server, or takes one up again, as node does.
func (l *life) openSession(st *sessionStream, o *stoapb.OpenSession, user uint64, fresh bool, watches []session.Item, done func(proto.Message, error)) {
	lease := host.Lease{ID: o.Session, TTL: host.LeaseTTL(o.Ttl), Renewed: l.clock()}
	opened := func(m proto.Message, err error) {
		switch {
		case err != nil:
			done(nil, err)
			return
		case st.closed:
			return
		case l.fence.Now() != nil:
			done(nil, fault.Fenced)
			return
		}
		if l.sv.c.mutation.RightsAtOpening {
			user = l.sv.c.own()
		}
		if c := st.cl.present; c.id == st.id && (c.term != nil || c.few != nil) {
			st.bringsAlong(user, watches)
		}
		st.session, _ = l.sessions.Open(lease, host.User{Credential: user}, o, watches, st)
		done(m, nil)
		st.session.Start()
	}
	if fresh {
		l.write(command.SessionOpen, &pb.LeaseGrantRequest{ID: lease.ID, TTL: lease.TTL}, user, true, opened)
		return
	}
	l.renewSession(o.Session, user, opened)
}

func (l *life) renewSession(id int64, user uint64, done func(proto.Message, error)) {
	l.keepAlive(&op{client: int(id)}, id, apply.Renewer{User: user, Session: true}, done)
}
