package rpc

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/lockpb"
	"github.com/stoa-kv/stoa/internal/tenant"
)

// lockServer is etcd's service v3lock.
type lockServer struct {
	lockpb.UnsafeLockServer
	*queues
}

var errSessionExpired = errors.New("mutex: session is expired")

// Lock puts the caller's key and waits until it is the oldest. The key of a caller who
// doesn't wait until then is removed.
func (s *lockServer) Lock(ctx context.Context, r *lockpb.LockRequest) (*lockpb.LockResponse, error) {
	lease, err := s.leased(ctx, r.Lease)
	if err != nil {
		return nil, textOnly(err)
	}
	p := placeIn(r.Name, lease)
	entered, err := s.enter(ctx, &p, nil, read(p.oldest()))
	if err != nil {
		return nil, textOnly(err)
	}
	resp := &lockpb.LockResponse{Header: entered.Header, Key: p.key}
	if owner := found(entered, 1); len(owner) == 0 || owner[0].GetCreateRevision() == p.rev {
		return resp, nil
	}
	if resp.Header, err = s.awaitTurn(tenant.WithCounted(ctx), &p); err != nil {
		return nil, textOnly(err)
	}
	if resp.Header == nil {
		return nil, errSessionExpired
	}
	return resp, nil
}

// Unlock deletes the key.
func (s *lockServer) Unlock(ctx context.Context, r *lockpb.UnlockRequest) (*lockpb.UnlockResponse, error) {
	resp, err := s.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: r.Key})
	if err != nil {
		return nil, textOnly(err)
	}
	return &lockpb.UnlockResponse{Header: resp.Header}, nil
}
