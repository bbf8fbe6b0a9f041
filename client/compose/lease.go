package compose

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// A lease of a composition is a lease of the same number in each cluster, or of a session's clusters: so a
// number passed with WithLease names the same lease everywhere.

// onAll does something in several clusters at once and waits for all. The errors
// name their clusters.
func (c *core) onAll(ctx context.Context, in []*cluster, do func(context.Context, int, *clientv3.Client) error) []error {
	errs := make([]error, len(in))
	var all sync.WaitGroup
	for i, of := range in {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
			defer cancel()
			if err := of.with(ctx, func(by *clientv3.Client) error { return do(ctx, i, by) }); err != nil {
				errs[i] = of.named(plain(err), false)
			}
		})
	}
	all.Wait()
	return errs
}

// with does an operation that only voters serve. Without an answer the member is probed: who needs leases alone does nothing else by which one that
// is cut off would be left.
func (c *cluster) with(ctx context.Context, do func(*clientv3.Client) error) error {
	if _, _, err := c.connect(ctx); err != nil {
		return err
	}
	for refused := false; ; refused = true {
		by, err := c.deciding(ctx)
		if err != nil {
			return err
		}
		if err = do(by); err == nil || !isLearner(err) || refused {
			if isCutOff(err) && !errors.Is(err, context.Canceled) {
				c.suspect()
			}
			return err
		}
		c.learner.Store(true) // as another request may have detected meanwhile
	}
}

func first(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Grant grants a lease, of one number, in all clusters; in none if one of them can't
// be reached.
func (c *Client) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return c.core.grant(ctx, c.shared.clusters, ttl)
}

func (c *core) grant(ctx context.Context, in []*cluster, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	id := rand.Int64N(1<<62) + 1
	granted := make([]int64, len(in))
	errs := c.onAll(ctx, in, func(ctx context.Context, i int, by *clientv3.Client) (err error) {
		granted[i], err = grantTo(ctx, by, id, ttl)
		return err
	})
	if err := first(errs); err != nil {
		go c.revoke(context.WithoutCancel(ctx), in, clientv3.LeaseID(id)) // leases in unreachable clusters expire
		return nil, err
	}
	return &clientv3.LeaseGrantResponse{ResponseHeader: &pb.ResponseHeader{}, ID: clientv3.LeaseID(id), TTL: slices.Min(granted)}, nil
}

// grantTo grants a lease of a number that no other can have. etcd's client asks again if an answer is lost: that the lease
// is there says then that it was granted, for that time at least.
func grantTo(ctx context.Context, by *clientv3.Client, id, ttl int64) (granted int64, err error) {
	a, err := clientv3.RetryLeaseClient(by).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: id, TTL: ttl})
	err = clientv3.ContextError(ctx, err)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseExist):
		return ttl, nil
	case err != nil:
		return 0, err
	}
	return a.TTL, nil
}

// Revoke revokes a lease in all clusters, when all earlier requests of this
// client were answered. Its keys are deleted at one revision in each cluster,
// but not in all clusters at once.
func (c *Client) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	ctx, cancel, _ := c.behind(ctx) // a cluster that doesn't answer is no reason to leave it in the others
	defer cancel()
	errs := c.core.revoke(ctx, c.shared.having(id), id)
	gone := 0
	for _, err := range errs {
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			gone++
		} else if err != nil {
			return nil, err
		}
	}
	if gone == len(errs) {
		return nil, rpctypes.ErrLeaseNotFound
	}
	return &clientv3.LeaseRevokeResponse{Header: &pb.ResponseHeader{}}, nil
}

func (c *core) revoke(ctx context.Context, in []*cluster, id clientv3.LeaseID) []error {
	c.mu.Lock()
	c.write(in...)
	c.mu.Unlock()
	errs := c.onAll(ctx, in, func(ctx context.Context, i int, by *clientv3.Client) error {
		if err := c.links[in[i].at].settle(ctx, time.Now().Add(c.cfg.Timeout)); err != nil && isCutOff(err) {
			return err
		}
		a, err := by.Revoke(ctx, id)
		if err == nil {
			c.mu.Lock()
			c.links[in[i].at].saw(a.Header.GetRevision())
			c.mu.Unlock()
		}
		return err
	})
	c.unlead()
	return errs
}

// TimeToLive is the shortest of all clusters, -1 if one has lost the lease,
// with the keys of all.
func (c *Client) TimeToLive(ctx context.Context, id clientv3.LeaseID, opts ...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	ctx, cancel, err := c.behind(ctx)
	defer cancel()
	if err != nil {
		return nil, err
	}
	in := c.shared.having(id)
	answers := make([]*clientv3.LeaseTimeToLiveResponse, len(in))
	err = first(c.core.onAll(ctx, in, func(ctx context.Context, i int, by *clientv3.Client) (err error) {
		answers[i], err = by.TimeToLive(ctx, id, opts...)
		return err
	}))
	if err != nil {
		return nil, err
	}
	all := answers[0]
	all.ResponseHeader = &pb.ResponseHeader{}
	var keys [][]byte
	for i, a := range answers {
		all.TTL, all.GrantedTTL = min(all.TTL, a.TTL), min(all.GrantedTTL, a.GrantedTTL)
		for _, key := range a.Keys {
			keys = append(keys, c.core.routes.here(in[i].at, key))
		}
	}
	all.Keys = keys
	return all, nil
}

// here translates a cluster's key into the composition's, by the first of its
// routes.
func (t *routing) here(cluster int, key []byte) []byte {
	for i := range t.routes {
		r := &t.routes[i]
		if r.cluster == cluster {
			if k := r.here(key); t.find(string(k)) == r {
				return k
			}
		}
	}
	return key
}

// Leases are those that all clusters have.
func (c *Client) Leases(ctx context.Context) (*clientv3.LeaseLeasesResponse, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	in := c.shared.clusters
	answers := make([]*clientv3.LeaseLeasesResponse, len(in))
	err := first(c.core.onAll(ctx, in, func(ctx context.Context, i int, by *clientv3.Client) (err error) {
		answers[i], err = by.Leases(ctx)
		return err
	}))
	if err != nil {
		return nil, err
	}
	all := &clientv3.LeaseLeasesResponse{ResponseHeader: &pb.ResponseHeader{}}
	for _, l := range answers[0].Leases {
		everywhere := true
		for _, a := range answers[1:] {
			everywhere = everywhere && slices.Contains(a.Leases, l)
		}
		if everywhere {
			all.Leases = append(all.Leases, l)
		}
	}
	return all, nil
}

// KeepAliveOnce keeps a lease alive in all clusters once. If one has lost it, it is
// revoked in the others.
func (c *Client) KeepAliveOnce(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	in := c.shared.having(id)
	ttls := make([]int64, len(in))
	errs := c.core.onAll(ctx, in, func(ctx context.Context, i int, by *clientv3.Client) error {
		a, err := by.KeepAliveOnce(ctx, id)
		if err == nil {
			ttls[i] = a.TTL
		}
		return err
	})
	if lost := slices.IndexFunc(errs, func(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }); lost >= 0 {
		go c.core.revoke(context.WithoutCancel(ctx), in, id)
		return nil, errs[lost]
	}
	if err := first(errs); err != nil {
		return nil, err
	}
	return &clientv3.LeaseKeepAliveResponse{ResponseHeader: &pb.ResponseHeader{}, ID: id, TTL: slices.Min(ttls)}, nil
}

// KeepAlive keeps a lease alive in all clusters until ctx ends, the client is closed, or one of the
// clusters has lost it: then it is revoked in the others. The channel is closed then.
func (c *Client) KeepAlive(ctx context.Context, id clientv3.LeaseID) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	asked := time.Now()
	a, err := c.KeepAliveOnce(ctx, id)
	if err != nil {
		return nil, err
	}
	out := make(chan *clientv3.LeaseKeepAliveResponse, 16)
	out <- a
	k := &keeper{core: c.core, in: c.shared.having(id), id: id, ttl: time.Duration(a.TTL) * time.Second, since: asked}
	k.kept = func() {
		select {
		case out <- a:
		default: // responses that aren't read are dropped
		}
	}
	go func() {
		defer close(out)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.core.ctx, cancel)()
		if k.keep(ctx) != nil {
			c.core.revoke(context.WithoutCancel(ctx), k.in, id)
		}
	}()
	return out, nil
}
