package client

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/client/internal/engine"
)

// Session is one ordered stream of requests to the cluster, over the member to
// which it is connected at the time; the package's documentation lists its
// guarantees. Client.Session opens one.
//
// All methods may be called by any number of goroutines at once. The order of a
// session is the order in which the methods that send were called: the …Async ones,
// Batch.Send, and the synchronous ones when they begin.
type Session struct {
	// Reader reads at the session's own level.
	Reader
	e *engine.Session
}

// engine is never nil: a zero session has ended.
func (s *Session) engine() *engine.Session {
	if s == nil || s.e == nil {
		return engine.None()
	}
	return s.e
}

// SessionOption overrides a default of Config for one session.
type SessionOption struct{ set func(*engine.Options) }

// WithTTL sets the time for which the session survives without contact to a
// member, counted from its last answered request: whole seconds; at least so
// long, and at most a quarter longer unless a leader changes.
func WithTTL(ttl time.Duration) SessionOption {
	return SessionOption{func(o *engine.Options) { o.TTL = ttl }}
}

// WithLevel sets the level of reads and watches that don't ask for one.
func WithLevel(l Level) SessionOption {
	return SessionOption{func(o *engine.Options) { o.Level = engine.Level(l) }}
}

// WithToken makes causal reads show all that another session has seen.
func WithToken(t Token) SessionOption {
	return SessionOption{func(o *engine.Options) { o.Revision = int64(t) }}
}

// WithEndpoints binds the session to members. Without it, a session prefers the
// leader, which saves its writes and strict reads a hop; bound to a follower, its
// causal and fast reads cost the leader nothing.
func WithEndpoints(endpoints ...string) SessionOption {
	return SessionOption{func(o *engine.Options) { o.Endpoints = endpoints }}
}

// WithRefusal ends the session, or the attempt to open it, with ErrRefused when all
// members have refused connections for this long. Without it, calls wait until the
// session's TTL is over: the members may be back by then.
func WithRefusal(after time.Duration) SessionOption {
	return SessionOption{func(o *engine.Options) { o.Refusal = after }}
}

// Session opens a session. It tries until one is open or ctx ends; ctx is that of
// opening alone.
func (c *Client) Session(ctx context.Context, opts ...SessionOption) (*Session, error) {
	if c == nil || c.e == nil {
		return nil, errZeroClient
	}
	o := c.e.Options()
	for _, opt := range opts {
		if opt.set != nil {
			opt.set(&o)
		}
	}
	e, err := c.e.Session(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Session{Reader: Reader{e.Reader}, e: e}, nil
}

// ID is the number of the session and of its lease: a key that is put with
// clientv3.WithLease(s.ID()) is deleted with the session.
func (s *Session) ID() clientv3.LeaseID { return s.engine().ID() }

// TTL is the session's time to live, as granted by the cluster.
func (s *Session) TTL() time.Duration { return s.engine().TTL() }

// Token is the highest revision that the session has seen so far.
func (s *Session) Token() Token { return Token(s.engine().Token()) }

// See makes all later causal and strict reads of this session show what another
// session has seen.
func (s *Session) See(t Token) { s.engine().See(int64(t)) }

// Done is closed when the session has ended; Err has the reason.
func (s *Session) Done() <-chan struct{} { return s.engine().Done() }

// Err is nil until the session has ended. Then it is one of ErrSessionExpired,
// ErrSessionClosed, ErrSessionTaken and ErrRefused, or the error with which a
// member has ended the session.
func (s *Session) Err() error { return s.engine().Err() }

// Member is the ID of the member that the session is connected to, 0 while there is
// none.
func (s *Session) Member() uint64 { return s.engine().Member() }

// Invoke carries out a call by itself at the member that the session is connected to: what the session's
// requests do has no order with it, and it is never repeated. Without a connection it fails with the gRPC code
// Unavailable. method, in, out and opts are those of grpc.ClientConn.
func (s *Session) Invoke(ctx context.Context, method string, in, out any, opts ...grpc.CallOption) error {
	return s.engine().Invoke(ctx, method, in, out, opts...)
}

// Close ends the session after all its requests: its ephemeral keys are deleted
// at one revision. If ctx ends first, the session is abandoned, and the keys
// are deleted when its TTL has passed. While one Close waits, another waits for it.
func (s *Session) Close(ctx context.Context) error { return s.engine().Close(ctx) }

// Ephemeral ties a key to the session through which it is put: it is deleted
// when the session is closed or lost. Without a session the put fails: with
// ErrNoSession by a Client, and by etcd's own client with etcd's error for a
// lease that isn't there.
func Ephemeral() clientv3.OpOption { return clientv3.WithLease(engine.OwnLease) }

// PutAsync puts a key without waiting for the answer. It waits only when
// Config.Pending requests are unanswered, as all …Async methods.
func (s *Session) PutAsync(key, val string, opts ...clientv3.OpOption) *Future[*clientv3.PutResponse] {
	return future(s.engine().PutAsync(key, val, opts...))
}

// Put puts a key.
func (s *Session) Put(ctx context.Context, key, val string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	return s.engine().Put(ctx, key, val, opts...)
}

// DeleteAsync deletes without waiting for the answer.
func (s *Session) DeleteAsync(key string, opts ...clientv3.OpOption) *Future[*clientv3.DeleteResponse] {
	return future(s.engine().DeleteAsync(key, opts...))
}

// Delete deletes a key, or the range that the options say.
func (s *Session) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	return s.engine().Delete(ctx, key, opts...)
}

// SyncAsync is a strict read of nothing: when it is answered, the session has seen all
// that was acknowledged to any client before it was sent, and its causal reads show
// that.
func (s *Session) SyncAsync() *Future[Token] { return future(engine.SyncAsync[Token](s.engine())) }

// Sync is SyncAsync and Wait.
func (s *Session) Sync(ctx context.Context) (Token, error) {
	revision, err := s.engine().Sync(ctx)
	return Token(revision), err
}

// Progress returns a revision at or below which no event of any of the session's
// watches is still to come. They are in the watches' feeds already.
func (s *Session) Progress(ctx context.Context) (Token, error) {
	revision, err := s.engine().Progress(ctx)
	return Token(revision), err
}

// Lease is etcd's Lease, for leases beside the session's own. Grants and
// keep-alives go to the cluster directly, revocations when all earlier requests
// of the session were answered; later reads of the session reflect them.
func (s *Session) Lease() clientv3.Lease { return s.engine().Lease() }

// Etcd is an etcd client whose KV, Watcher and Lease go through the session: for
// code that takes a *clientv3.Client, as the packages below etcd's client/v3 do.
// Closing it leaves session and client open; it ends with the session.
func (s *Session) Etcd() *clientv3.Client { return s.engine().Etcd() }
