package compose

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/internal/engine"
)

// Session is one virtual session over all clusters: a lease in each, of the same
// number. Its requests are in its client's order. When the lease is lost in one
// cluster it is revoked in the others, and every later call fails with
// ErrSessionExpired. A key that is put with client.Ephemeral(), or with
// clientv3.WithLease of the session's ID, goes with the session.
//
// The keys go at one revision in each cluster. The clusters don't delete at the
// same time: a cluster that is cut off keeps its keys until the lease has
// expired there, at most the TTL after the session's last contact there.
type Session struct {
	*Client
	id     clientv3.LeaseID
	ttl    time.Duration
	keeper *keeper
	cancel context.CancelFunc
	err    atomic.Pointer[error]
	once   sync.Once
	done   chan struct{}
	kept   chan struct{} // closed when the leases are not kept alive any more
}

// SessionOption changes one session.
type SessionOption struct{ set func(*sessionOptions) }

type sessionOptions struct {
	ttl      time.Duration
	clusters []string
}

// WithTTL sets the time for which the session survives without contact to a
// cluster: whole seconds, 30 s without this option.
func WithTTL(ttl time.Duration) SessionOption {
	return SessionOption{func(o *sessionOptions) { o.ttl = ttl }}
}

// WithClusters restricts the session to some clusters: it has leases in no other, and
// the loss of any other doesn't end it. While it lasts, its client and the forks know so: for other processes its
// ID is that of a lease that some clusters have lost.
func WithClusters(names ...string) SessionOption {
	return SessionOption{func(o *sessionOptions) { o.clusters = names }}
}

const defaultTTL = 30 * time.Second

// Session opens a session. It fails if one of its clusters can't be reached.
func (c *Client) Session(ctx context.Context, opts ...SessionOption) (*Session, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	o := sessionOptions{ttl: defaultTTL}
	for _, opt := range opts {
		if opt.set != nil {
			opt.set(&o)
		}
	}
	if err := engine.CheckTTL(o.ttl); err != nil {
		return nil, fmt.Errorf("compose: opening a session: %w", err)
	}
	in, err := c.shared.named(o.clusters)
	if err != nil {
		return nil, err
	}
	asked := time.Now()
	granted, err := c.core.grant(ctx, in, int64(o.ttl/time.Second))
	if err != nil {
		return nil, fmt.Errorf("compose: opening a session: %w", err)
	}
	s := &Session{
		id: granted.ID, ttl: time.Duration(granted.TTL) * time.Second,
		done: make(chan struct{}), kept: make(chan struct{}),
	}
	of := *c
	of.root, of.session = false, s
	s.Client = &of
	s.keeper = &keeper{core: c.core, in: in, id: s.id, ttl: s.ttl, since: asked}
	c.shared.lease(s.id, in)
	var alive context.Context
	alive, s.cancel = context.WithCancel(context.Background())
	go s.keep(alive)
	return s, nil
}

func (s *shared) named(names []string) ([]*cluster, error) {
	if len(names) == 0 {
		return s.clusters, nil
	}
	var in []*cluster
	for _, name := range names {
		at := slices.Index(s.routes.names, name)
		if at < 0 {
			return nil, fmt.Errorf("compose: there is no cluster %q", name)
		}
		if !slices.Contains(in, s.clusters[at]) {
			in = append(in, s.clusters[at])
		}
	}
	return in, nil
}

// lease records in which clusters a session has its lease.
func (s *shared) lease(id clientv3.LeaseID, in []*cluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leased[id] = in
}

// unlease is for a session that has ended.
func (s *shared) unlease(id clientv3.LeaseID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leased, id)
}

// having are the clusters that have a lease.
func (s *shared) having(id clientv3.LeaseID) []*cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in, ok := s.leased[id]; ok {
		return in
	}
	return s.clusters
}

// keep runs for the life of the session.
func (s *Session) keep(ctx context.Context) {
	defer close(s.kept)
	defer context.AfterFunc(s.core.ctx, func() { s.end(ErrClosed) })()
	err := s.keeper.keep(ctx)
	if err == nil {
		return
	}
	s.core.cfg.Logger.Warn("a session is lost", zap.Int64("session", int64(s.id)), zap.Error(err))
	s.end(fmt.Errorf("%w: %w", ErrSessionExpired, err))
	s.core.revoke(context.Background(), s.keeper.in, s.id)
}

func (s *Session) end(why error) {
	s.once.Do(func() {
		s.err.Store(&why)
		close(s.done)
		s.cancel()
		s.shared.unlease(s.id)
	})
}

// in reports whether the session has a lease in a cluster.
func (s *Session) in(at int) bool {
	return slices.ContainsFunc(s.keeper.in, func(of *cluster) bool { return of.at == at })
}

// ID is the number of the session's leases, the same in every cluster.
func (s *Session) ID() clientv3.LeaseID { return s.id }

// TTL is the session's time to live.
func (s *Session) TTL() time.Duration { return s.ttl }

// Done is closed when the session has ended; Err has the reason.
func (s *Session) Done() <-chan struct{} {
	if s.done == nil {
		ended := make(chan struct{})
		close(ended)
		return ended
	}
	return s.done
}

// Err is nil until the session has ended. Then it is an ErrSessionExpired that names
// the cluster which has lost it, client.ErrSessionClosed, or ErrClosed.
func (s *Session) Err() error {
	if s.done == nil {
		return errZero
	}
	if err := s.err.Load(); err != nil {
		return *err
	}
	return nil
}

// look checks the lease in all clusters, without waiting.
func (s *Session) look() { s.keeper.lookNow() }

// Close ends the session in all clusters, after its client's requests. The
// error names clusters that were not reached: there the lease expires.
func (s *Session) Close(ctx context.Context) error {
	if s.done == nil {
		return errZero
	}
	if s.Err() != nil {
		<-s.kept
		return nil
	}
	ctx, cancel, _ := s.Client.behind(ctx) // a cluster that doesn't answer must not keep the leases of others
	defer cancel()
	s.end(client.ErrSessionClosed)
	<-s.kept
	errs := slices.DeleteFunc(s.core.revoke(ctx, s.keeper.in, s.id), func(err error) bool {
		return errors.Is(err, rpctypes.ErrLeaseNotFound) // it has just expired
	})
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("compose: closing a session: %w", err)
	}
	return nil
}
