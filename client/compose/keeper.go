package compose

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// keeper keeps a lease alive in several clusters, each for itself, so that a
// silent cluster doesn't cost the others their lease before its own has
// expired.
type keeper struct {
	core *core
	in   []*cluster
	id   clientv3.LeaseID
	ttl  time.Duration
	// since is a time before the clusters granted the lease, or confirmed it: it may end the TTL after that.
	since time.Time
	// kept, if set, is called whenever a cluster has confirmed the lease.
	kept func()
	// look is closed, and made anew, to ask all clusters at once.
	mu   sync.Mutex
	look chan struct{}
}

// keep returns when ctx has ended, nil, or when one cluster has lost the lease,
// or has not confirmed it for the TTL: an error that names the cluster.
func (k *keeper) keep(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lost := make(chan error, len(k.in))
	var all sync.WaitGroup
	for _, of := range k.in {
		all.Go(func() {
			if err := k.keepIn(ctx, of); err != nil {
				lost <- of.named(err, false)
				cancel()
			}
		})
	}
	all.Wait()
	select {
	case err := <-lost:
		return err
	default:
		return nil
	}
}

// keepIn keeps the lease alive in one cluster.
func (k *keeper) keepIn(ctx context.Context, of *cluster) error {
	confirmed := k.since
	for {
		rest := k.ttl / 3
		if time.Since(confirmed) > rest {
			rest = min(k.ttl/10, time.Second) // the last attempt failed
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
		case <-k.looks():
		}
		asked := time.Now()
		err := k.once(ctx, of, confirmed.Add(k.ttl))
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			confirmed = asked
			if k.kept != nil {
				k.kept()
			}
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			return err
		case time.Since(confirmed) >= k.ttl:
			return plain(err)
		}
	}
}

func (k *keeper) once(ctx context.Context, of *cluster, until time.Time) error {
	if atMost := time.Now().Add(max(k.ttl/3, time.Second)); atMost.Before(until) {
		until = atMost
	}
	asking, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	err := of.with(asking, func(by *clientv3.Client) error {
		_, err := by.KeepAliveOnce(asking, k.id)
		return err
	})
	if err != nil && asking.Err() != nil && ctx.Err() == nil {
		of.leave()
	}
	return err
}

func (k *keeper) looks() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.look == nil {
		k.look = make(chan struct{})
	}
	return k.look
}

// lookNow asks all clusters at once.
func (k *keeper) lookNow() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.look != nil {
		close(k.look)
		k.look = nil
	}
}
