package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/stoa-kv/stoa/client/mirror"
)

// metadataRemaining tells stoa how much of a lease that is granted remains, in seconds. etcd
// ignores it, and gives the lease its full time.
const metadataRemaining = "stoa-remaining-ttl"

// metadataSessions asks stoa for the leases of sessions, too: their keys, which end with them,
// move as the others do. etcd ignores it.
const metadataSessions = "stoa-sessions"

// lease is one of the source's. Its times are in seconds.
type lease struct {
	id, ttl, remaining int64
	keys               [][]byte
}

// moveLeases gives the target the source's leases, and no others, and attaches them to
// their keys.
func (m *migration) moveLeases(ctx context.Context) (n int, err error) {
	leases, err := m.sourceLeases(ctx)
	if err != nil {
		return 0, fmt.Errorf("leases of the source: %w", err)
	}
	have, err := m.list(ctx, m.To)
	if err != nil {
		return 0, fmt.Errorf("leases of the target: %w", err)
	}
	if err := m.revokeOthers(ctx, leases, have); err != nil {
		return 0, fmt.Errorf("leases of the target: %w", err)
	}
	if err := each(ctx, leases, m.grant); err != nil {
		return 0, leaseMoved(fmt.Errorf("granting a lease in the target: %w", err))
	}
	var ops []mirror.Op
	for _, l := range leases {
		for _, k := range l.keys {
			ops = append(ops, mirror.Op{Key: k, Lease: l.id})
		}
	}
	if err := m.e.Attach(ctx, ops); err != nil {
		return 0, leaseMoved(fmt.Errorf("attaching leases in the target: %w", err))
	}
	return len(leases), nil
}

func (m *migration) list(ctx context.Context, c *clientv3.Client) (ids []int64, err error) {
	err = m.request(ctx, func(ctx context.Context) error {
		r, err := c.Leases(ctx)
		if err != nil {
			return err
		}
		ids = nil
		for _, l := range r.Leases {
			ids = append(ids, int64(l.ID))
		}
		return nil
	})
	return ids, err
}

// requestTimeout bounds a request about a lease. One that exceeds it is sent again.
const requestTimeout = 10 * time.Second

func (m *migration) request(ctx context.Context, fn func(context.Context) error) error {
	return m.again(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		return fn(ctx)
	})
}

func (m *migration) sourceLeases(ctx context.Context) ([]lease, error) {
	ids, err := m.list(metadata.AppendToOutgoingContext(ctx, metadataSessions, "all"), m.From)
	if err != nil {
		return nil, err
	}
	all := make([]*lease, len(ids))
	for i, id := range ids {
		all[i] = &lease{id: id}
	}
	if err := each(ctx, all, m.look); err != nil {
		return nil, err
	}
	var leases []lease
	for _, l := range all {
		if l.ttl > 0 {
			leases = append(leases, *l)
		}
	}
	return leases, nil
}

// look fills in the TTL of a lease, 0 if it has ended, and its keys.
func (m *migration) look(ctx context.Context, l *lease) error {
	return m.request(ctx, func(ctx context.Context) error {
		r, err := m.From.TimeToLive(ctx, clientv3.LeaseID(l.id), clientv3.WithAttachedKeys())
		if err != nil {
			return err
		}
		l.ttl, l.remaining, l.keys = r.GrantedTTL, max(r.TTL, 1), r.Keys
		return nil
	})
}

// revokeOthers ends the leases of a target that was restored from a snapshot which have
// ended in the source since. No key has a lease in the target yet.
func (m *migration) revokeOthers(ctx context.Context, leases []lease, have []int64) error {
	wanted := map[int64]bool{}
	for _, l := range leases {
		wanted[l.id] = true
	}
	others := slices.DeleteFunc(have, func(id int64) bool { return wanted[id] })
	return each(ctx, others, func(ctx context.Context, id int64) error { return m.revoke(ctx, id) })
}

func (m *migration) revoke(ctx context.Context, id int64) error {
	return m.request(ctx, func(ctx context.Context) error {
		_, err := m.To.Revoke(ctx, clientv3.LeaseID(id))
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return nil
		}
		return err
	})
}

// grant gives the target a lease. It may have it already, from a snapshot or a cut-over that
// was interrupted: then the lease gets its full time.
func (m *migration) grant(ctx context.Context, l lease) error {
	err := m.grantNew(ctx, l)
	if !errors.Is(err, rpctypes.ErrLeaseExist) {
		return err
	}
	longEnough := false
	err = m.request(ctx, func(ctx context.Context) error {
		r, err := m.To.TimeToLive(ctx, clientv3.LeaseID(l.id))
		if longEnough = err == nil && r.GrantedTTL >= l.ttl; longEnough {
			_, err = m.To.KeepAliveOnce(ctx, clientv3.LeaseID(l.id))
		}
		return err
	})
	if err != nil || longEnough {
		return err
	}
	if err := m.revoke(ctx, l.id); err != nil {
		return err
	}
	return m.grantNew(ctx, l)
}

// grantNew doesn't use clientv3's Grant, which chooses the ID itself.
func (m *migration) grantNew(ctx context.Context, l lease) error {
	ctx = metadata.AppendToOutgoingContext(ctx, metadataRemaining, strconv.FormatInt(l.remaining, 10))
	return m.request(ctx, func(ctx context.Context) error {
		_, err := pb.NewLeaseClient(m.To.ActiveConnection()).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: l.id, TTL: l.ttl})
		return rpctypes.Error(err)
	})
}

// each calls fn for all items, several at a time, and returns the first error.
func each[T any](ctx context.Context, items []T, fn func(context.Context, T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan T)
	var done sync.WaitGroup
	for range inFlight * 4 {
		done.Go(func() {
			for item := range work {
				if ctx.Err() != nil {
					continue
				}
				if err := fn(ctx, item); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, item := range items {
		work <- item
	}
	close(work)
	done.Wait()
	return context.Cause(ctx)
}
