package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	sdk "github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/replica"
)

// composedLease is a lease in all clusters: a session's, or one that is kept alive.
type composedLease struct {
	id      clientv3.LeaseID
	fork    int64
	ttl     int64
	s       *compose.Session
	alive   <-chan *clientv3.LeaseKeepAliveResponse
	revoked bool // in one cluster, by another

	// How it was when it was given up or all was done: nil, or why it had ended; and which revision the clusters had reached.
	ended  error
	gone   bool // it was revoked, and all clusters have said so
	left   bool // it may have been revoked in some
	before []int64
	kept   []int64 // it was still alive when the clusters had reached these
}

func (h *composedLease) String() string {
	return fmt.Sprintf("client %d: lease %d of %d s, session: %v, gone: %v at %v, left: %v, alive at %v, ended: %v", h.fork, h.id, h.ttl, h.s != nil, h.gone, h.before, h.left, h.kept, h.ended)
}

// hold takes a lease, or asks for it, and perhaps gives it up.
func (a *composedApp) hold() {
	if a.held != nil {
		a.look()
		if a.one(2) {
			a.release()
		}
		return
	}
	h := &composedLease{fork: a.fork, ttl: []int64{2, 2, 5, calmTTL}[a.rng.IntN(4)]}
	ctx, cancel := context.WithTimeout(context.Background(), composedHang)
	defer cancel()
	var err error
	if a.far == nil && a.one(2) {
		if h.s, err = a.c.Session(ctx, compose.WithTTL(time.Duration(h.ttl)*time.Second)); err == nil {
			h.id = h.s.ID()
		}
	} else {
		err = a.grant(ctx, h)
	}
	var of *compose.ClusterError
	switch err = a.told(err); {
	case err == nil:
		a.mu.Lock()
		defer a.mu.Unlock()
		a.held = h
		a.leases = append(a.leases, h)
	case ctx.Err() != nil:
		a.w.found("app %d: a lease hangs", a.id)
	case !errors.As(err, &of):
		a.w.found("app %d: a lease: %v", a.id, err)
	}
}

func (a *composedApp) grant(ctx context.Context, h *composedLease) error {
	granted, err := a.asks().Grant(ctx, h.ttl)
	if err != nil {
		return err
	}
	h.id = granted.ID
	h.alive, err = a.asks().KeepAlive(context.Background(), h.id)
	return err
}

// putHeld puts a key with the lease.
func (a *composedApp) putHeld() {
	h := a.held
	if h == nil {
		return
	}
	d := &deed{kind: "put", key: a.key(), held: h}
	opt := clientv3.WithLease(h.id)
	if h.s != nil {
		d.by = h.s.Client
		if a.one(2) {
			opt = sdk.Ephemeral()
		}
	}
	a.send(d, func(c asks, ctx context.Context) (clientv3.OpResponse, error) {
		return done(c.Put(ctx, d.key, d.value, opt))
	}, func(c *compose.Client) func() { return answers(a, d, c.PutAsync(d.key, d.value, opt)) })
}

// release ends the lease: its keys are gone when all clusters have said so.
func (a *composedApp) release() {
	h := a.held
	a.mu.Lock()
	a.held = nil
	a.mu.Unlock()
	h.ended = h.state()
	ctx, cancel := context.WithTimeout(context.Background(), composedHang)
	defer cancel()
	var err error
	if h.s != nil {
		err = h.s.Close(ctx)
	} else if _, err = a.asks().Revoke(ctx, h.id); errors.Is(err, rpctypes.ErrLeaseNotFound) && h.lasts() && a.far == nil { // etcd's client tries again
		a.w.found("app %d: %v isn't there", a.id, h)
	}
	var of *compose.ClusterError
	switch err = a.told(err); {
	case ctx.Err() != nil:
		a.w.found("app %d: the end of %v hangs", a.id, h)
	case err == nil && (h.s == nil || errors.Is(h.s.Err(), sdk.ErrSessionClosed)):
		h.gone, h.before = true, a.w.reached()
	case err == nil, errors.Is(err, rpctypes.ErrLeaseNotFound) && h.s == nil: // it had ended
		h.left = true
	case errors.As(err, &of):
		h.left = true
	default:
		a.w.found("app %d: the end of %v: %v", a.id, h, err)
	}
}

// lasts tells whether nothing that happens can end the lease.
func (h *composedLease) lasts() bool { return h.ttl == calmTTL && !h.revoked }

// state is nil, or why the lease has ended.
func (h *composedLease) state() error {
	if h.s != nil {
		return h.s.Err()
	}
	for {
		select {
		case _, ok := <-h.alive:
			if !ok {
				return errors.New("it isn't kept alive any more")
			}
		default:
			return nil
		}
	}
}

// reached is how far the clusters are.
func (w *composedWorld) reached() (all []int64) {
	for _, c := range w.clusters {
		all = append(all, c.ledger.reached.Load())
	}
	return all
}

// abandon forgets the lease, whose client is closed.
func (a *composedApp) abandon() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held != nil {
		a.held.left = true
		a.held = nil
	}
}

// settleLease notes how the lease is in the end.
func (a *composedApp) settleLease() {
	if h := a.held; h != nil {
		kept := a.w.reached()
		if h.ended = h.state(); h.ended == nil && !h.revoked { // which may not be noticed yet
			h.kept = kept
		}
	}
}

// checkLease: while it lives it keeps its keys, and when it has ended there are none, and will be none.
func (a *composedApp) checkLease(h *composedLease) {
	w := a.w
	w.counts.Leases++
	var of *compose.ClusterError
	switch {
	case h.ended == nil:
	case h.lasts():
		w.found("app %d: %v, and there was no reason", a.id, h)
	case h.s != nil && !errors.Is(h.ended, compose.ErrClosed) && (!errors.Is(h.ended, compose.ErrSessionExpired) || !errors.As(h.ended, &of)):
		w.found("app %d: %v, and it isn't said where", a.id, h)
	}
	for i, c := range w.clusters {
		revoked := int64(0)
		for _, kv := range c.ledger.all {
			before := c.ledger.at(string(kv.Key), kv.ModRevision-1)
			if kv.Version != 0 && kv.Lease == int64(h.id) && revoked != 0 {
				w.found("app %d: %v was revoked in cluster %d at %d, and there is %v", a.id, h, i, revoked, kv)
			}
			if kv.Version == 0 && before.GetLease() == int64(h.id) && w.expires(i, kv) {
				revoked = kv.ModRevision
				w.counts.Expired++
			}
		}
		if revoked != 0 && h.kept != nil && revoked <= h.kept[i] {
			w.found("app %d: %v has lost its keys in cluster %d at %d", a.id, h, i, revoked)
		}
		through := int64(everything)
		if h.gone {
			through = h.before[i]
		}
		if over := h.gone || h.ended != nil && h.ttl < calmTTL; !over {
			continue
		}
		for _, kv := range c.ledger.find("", "\xff\xff", through) {
			if kv.Lease == int64(h.id) {
				w.found("app %d: %v is over, and in cluster %d there is %v", a.id, h, i, kv)
			}
		}
	}
}

// expires tells whether a deletion is no client's.
func (w *composedWorld) expires(cluster int, kv *mvccpb.KeyValue) bool {
	return w.done[cluster][kv.ModRevision] == nil && !strings.HasPrefix(string(kv.Key), "/stoa/")
}

// revoke ends the lease of an app in one cluster.
func (w *composedWorld) revoke(c *simCluster, a *composedApp) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if h := a.held; h != nil {
		h.revoked = true
		core := c.rig.servers[0].process.Load().core.Load()
		core.propose(command.LeaseRevoke, &pb.LeaseRevokeRequest{ID: int64(h.id)}, func(replica.Outcome) {})
	}
}
