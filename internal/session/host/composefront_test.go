package host

import (
	"context"
	"errors"
	"time"
	_ "unsafe" // for go:linkname

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/watch"
)

// valCtxCh is the channel by which the contexts of etcd's watchers never end. It is made outside of all bubbles of synctest, and no
// time passes in one whose goroutines wait for it; nil says the same.
//
//go:linkname valCtxCh go.etcd.io/etcd/client/v3.valCtxCh
var valCtxCh chan struct{}

// What etcd's clients ask for beside sessions, as package node does it.

// Range implements rpc.KV.
func (f front) Range(ctx context.Context, r *pb.RangeRequest) (*kvwire.RangeResponse, error) {
	return routed(ctx, f, func(c *rigCore, user uint64) (*kvwire.RangeResponse, error) {
		parts := c.Machine.Placement().Range(r.GetKey(), r.GetRangeEnd())
		if !r.GetSerializable() {
			var err error
			if c, err = f.strict(ctx, parts); err != nil {
				return nil, err
			}
		}
		floor := c.p.hub.Floor()
		resp, err := c.Machine.Range(r, parts, 0, user)
		if err == nil && resp.Header.GetRevision() < floor {
			err = fault.Moved
		}
		return resp, err
	})
}

// Put implements rpc.KV.
func (f front) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	return submitted[*pb.PutResponse](ctx, f, command.Put, r)
}

// DeleteRange implements rpc.KV.
func (f front) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return submitted[*pb.DeleteRangeResponse](ctx, f, command.DeleteRange, r)
}

// Txn implements rpc.KV.
func (f front) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if _, handled := f.core().Machine.PlanRead(command.Txn, r, anonymous); handled || !apply.ReadOnly(r) {
		return submitted[*pb.TxnResponse](ctx, f, command.Txn, r)
	}
	return routed(ctx, f, func(c *rigCore, user uint64) (*pb.TxnResponse, error) {
		parts := c.Machine.Parts(r)
		if !apply.Serializable(r) {
			var err error
			if c, err = f.strict(ctx, parts); err != nil {
				return nil, err
			}
		}
		floor := c.p.hub.Floor()
		resp, err := c.Machine.ReadTxn(r, parts, 0, user)
		if err == nil && resp.Header.GetRevision() < floor {
			err = fault.Moved
		}
		return resp, err
	})
}

// Compact implements rpc.KV.
func (f front) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	if f.s.rig.lenient {
		ctx = own(ctx)
	}
	return submitted[*pb.CompactionResponse](ctx, f, command.Compact, r)
}

// LeaseGrant implements rpc.Lessor.
func (f front) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	if r.ID == 0 {
		r.ID = f.s.rig.nextID.Add(1)
	}
	return submitted[*pb.LeaseGrantResponse](ctx, f, command.LeaseGrant, r)
}

// LeaseRevoke implements rpc.Lessor.
func (f front) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	return submitted[*pb.LeaseRevokeResponse](ctx, f, command.LeaseRevoke, r)
}

// LeaseRenew implements rpc.Lessor.
func (f front) LeaseRenew(ctx context.Context, id int64) (int64, error) {
	p := f.s.process.Load()
	user, err := p.holder(ctx)
	if err != nil {
		return 0, err
	}
	return p.renewedBy(ctx, id, apply.Renewer{User: user})
}

// NewWatchStream implements rpc.Watcher.
func (f front) NewWatchStream(context.Context) *watch.Stream {
	return f.s.process.Load().hub.NewStream(apply.Anonymous)
}

// OpenWatch implements rpc.Watcher. No extension handles watches.
func (f front) OpenWatch(ctx context.Context, _ *pb.WatchCreateRequest) (*mvccpb.Event, uint64, error) {
	if f.s.rig.lenient {
		return nil, auth.Own, nil
	}
	user, err := f.s.process.Load().holder(ctx)
	return nil, user, err
}

// Authenticate implements rpc.Auth.
func (f front) Authenticate(ctx context.Context, r *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	reply := &pb.AuthenticateResponse{Header: &pb.ResponseHeader{Revision: f.Revision()}}
	if f.s.rig.authenticate(r, reply) != nil {
		return nil, fault.AuthFailed
	}
	return reply, nil
}

// routed does something again as long as the keys are found to be elsewhere.
func routed[R any](ctx context.Context, f front, do func(c *rigCore, user uint64) (R, error)) (none R, err error) {
	user, err := f.s.process.Load().holder(ctx)
	if err != nil {
		return none, err
	}
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		p := f.s.process.Load()
		if p.down.Load() {
			return none, fault.Stopped
		}
		p.State() // another core, if this one is being replaced
		switch v, err := do(p.core.Load(), user); {
		case !errors.Is(err, fault.Moved):
			return v, err
		case time.Since(begun) > stressTimeout:
			return none, fault.Timeout
		case ctx.Err() != nil:
			return none, ctx.Err()
		}
	}
}

// strict waits until a linearizable read is possible.
func (f front) strict(ctx context.Context, parts placement.Set) (*rigCore, error) {
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		c, done := f.core(), make(chan error, 1)
		c.Replica.ReadPoint(parts, func(err error) { done <- err })
		select {
		case err := <-done:
			if !fault.Passing(err) || time.Since(begun) > stressTimeout {
				return c, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// submitted writes, and waits for the outcome.
func submitted[R proto.Message](ctx context.Context, f front, kind command.Kind, req proto.Message) (R, error) {
	return routed(ctx, f, func(c *rigCore, user uint64) (r R, err error) {
		body, err := proto.Marshal(req)
		if err != nil {
			return r, err
		}
		w := &replica.Write{Parts: c.Machine.Placement().All(), System: true, Command: command.Command{Kind: kind, Body: body}}
		if kind != command.LeaseGrant && kind != command.LeaseRevoke && kind != command.Compact {
			p := c.Machine.Plan(kind, req, anonymous)
			w.Command, w.Parts, w.System = p.Command(kind, body), p.Parts, false
		}
		if w.Command.User = user; user != 0 {
			w.Parts |= c.Machine.ForLeases(user, req)
		}
		done := make(chan replica.Outcome, 1)
		w.Done = func(out replica.Outcome) { done <- out }
		c.Replica.Submit(w)
		select {
		case out := <-done:
			if out.Err != nil {
				return r, out.Err
			}
			return out.Response.(R), nil
		case <-ctx.Done():
			return r, ctx.Err()
		}
	})
}

// anonymous is who asks beside sessions.
func anonymous() (client string, lease int64) { return "", 0 }
