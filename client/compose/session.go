package compose

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Session is one virtual session over all clusters: a lease in each, of the same
// number. Its requests are in its client's order. When the lease is lost in one
// cluster it is revoked in the others, and every later call fails with
// ErrSessionExpired. A key that is put with client.Ephemeral() goes with the
// session.
type Session struct {
	*Client
}

// SessionOption changes one session.
type SessionOption func(*sessionOptions)

type sessionOptions struct {
	ttl      time.Duration
	clusters []string
}

// WithTTL sets how long the session outlives its last sign of life: 30 s else.
func WithTTL(ttl time.Duration) SessionOption { return func(o *sessionOptions) { o.ttl = ttl } }

// WithClusters restricts the session to some clusters: it has leases in no other,
// and doesn't care for the loss of any other.
func WithClusters(names ...string) SessionOption {
	return func(o *sessionOptions) { o.clusters = names }
}

// Session opens a session. It fails if one of its clusters can't be reached.
func (c *Client) Session(ctx context.Context, opts ...SessionOption) (*Session, error) {
	return nil, errSkeleton
}

// ID is the number of the session's leases, the same in every cluster.
func (s *Session) ID() clientv3.LeaseID { return 0 }

// Done is closed when the session has ended; Err tells why.
func (s *Session) Done() <-chan struct{} { return nil }

// Err is nil until the session has ended.
func (s *Session) Err() error { return errSkeleton }

// Close ends the session in all clusters, behind its requests.
func (s *Session) Close(ctx context.Context) error { return errSkeleton }
