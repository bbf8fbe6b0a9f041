package node

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/session"
	"github.com/stoa-kv/stoa/internal/session/host"
	"github.com/stoa-kv/stoa/internal/watch"
)

// OpenSession opens a session, or takes one up again. Nothing is said to the sink
// before Start.
func (n *Node) OpenSession(ctx context.Context, o *stoapb.OpenSession, watches []session.Item, sink session.Sink) (session.Handle, *stoapb.Opened, error) {
	who, err := n.identify(ctx)
	if err != nil {
		return nil, nil, err
	}
	s, opened, err := n.openSessionAs(ctx, o, watches, sink, who)
	if n.unknown(ctx, &who, err) {
		return n.openSessionAs(ctx, o, watches, sink, who)
	}
	return s, opened, err
}

func (n *Node) openSessionAs(ctx context.Context, o *stoapb.OpenSession, watches []session.Item, sink session.Sink, who identity) (session.Handle, *stoapb.Opened, error) {
	client, err := n.sessionClient(ctx, o.GetClient(), who)
	if err != nil {
		return nil, nil, err
	}
	if err := n.reserved(ctx, who); err != nil {
		return nil, nil, err
	}
	lease := host.Lease{ID: o.GetSession(), Renewed: time.Now()}
	if lease.ID == 0 {
		granted, err := n.grantAs(ctx, command.SessionOpen, &pb.LeaseGrantRequest{TTL: host.LeaseTTL(max(o.GetTtl(), n.minTTL()))}, who)
		if err != nil {
			return nil, nil, err
		}
		lease.ID, lease.TTL = granted.GetID(), granted.GetTTL()
	} else {
		if lease.TTL, err = n.renewAs(ctx, lease.ID, who.user, true); err != nil {
			return nil, nil, gone(err)
		}
	}
	o.Client = client
	s, opened := n.sessions.Open(lease, host.User{Credential: who.user, Until: who.until}, o, watches, sink)
	if n.Fenced() { // since this was asked for: the sessions that were open then have ended
		s.Close()
		return nil, nil, fault.Fenced
	}
	opened.Revision = n.Revision()
	return s, opened, nil
}

// sessionClient is the ID that a session may have, and refuses clients who are no users.
func (n *Node) sessionClient(ctx context.Context, sent string, who identity) (string, error) {
	if err := n.known(ctx, who); err != nil {
		return "", err
	}
	u, err := n.core.Load().machine.Auth().Authorize(who.user)
	if err != nil {
		return "", err
	}
	return u.Client(sent)
}

// gone says of a missing lease what it means for its session.
func gone(err error) error {
	if errors.Is(err, fault.LeaseNotFound) {
		return fault.SessionGone
	}
	return err
}

func (n *Node) newSessions() *host.Sessions {
	return host.New(around{n}, host.Config{
		RequestTimeout: n.cfg.requestTimeout(), MaxRequestBytes: n.cfg.MaxRequestBytes, Counts: &n.counts.sessions,
		Lane: n.lane, Limits: n.limits,
	})
}

// around is what surrounds the sessions on this server: goroutines and timers.
type around struct{ n *Node }

// State implements host.Server.
func (a around) State() *host.State { return &a.n.current().state }

// Hub implements host.Server.
func (a around) Hub() *watch.Hub { return a.n.hub }

// Now implements host.Server.
func (a around) Now() time.Time { return time.Now() }

// Go implements host.Server.
func (a around) Go(f func()) { go f() }

// After implements host.Server.
func (a around) After(d time.Duration, f func()) (stop func()) {
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}

// Renew implements host.Server.
func (a around) Renew(id int64, user uint64, done func(error)) {
	go func() {
		ctx, cancel := context.WithTimeout(a.n.life, a.n.cfg.requestTimeout())
		defer cancel()
		_, err := a.n.renewAs(ctx, id, user, true)
		if err != nil && !errors.Is(err, fault.LeaseNotFound) {
			a.n.log.Debug("a session's lease could not be renewed", zap.Int64("session", id), zap.Error(err))
		}
		done(err)
	}()
}

// Grows implements host.Server.
func (a around) Grows(bytes int) { a.n.grows(bytes) }

// Unreadable implements host.Server.
func (a around) Unreadable(id int64, err error) {
	a.n.log.Warn("reading history for a session's watches failed", zap.Int64("session", id), zap.Error(err))
}
