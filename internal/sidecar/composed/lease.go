package composed

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/stoa-kv/stoa/client/compose"
)

// lease is etcd's Lease service. A lease has the same ID in all clusters.
type lease struct {
	pb.UnimplementedLeaseServer
	clients *clients
}

func (l *lease) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	c, err := l.clients.of(ctx)
	switch {
	case err != nil:
		return nil, err
	case r.ID != 0:
		return nil, errLeaseID
	}
	a, err := c.Grant(ctx, r.TTL)
	if err != nil {
		return nil, asStatus(err)
	}
	return &pb.LeaseGrantResponse{Header: a.ResponseHeader, ID: int64(a.ID), TTL: a.TTL}, nil
}

func (l *lease) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	c, err := l.clients.of(ctx)
	if err != nil {
		return nil, err
	}
	a, err := c.Revoke(ctx, clientv3.LeaseID(r.ID))
	return (*pb.LeaseRevokeResponse)(a), asStatus(err)
}

func (l *lease) LeaseTimeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	c, err := l.clients.of(ctx)
	if err != nil {
		return nil, err
	}
	var options []clientv3.LeaseOption
	if r.Keys {
		options = append(options, clientv3.WithAttachedKeys())
	}
	a, err := c.TimeToLive(ctx, clientv3.LeaseID(r.ID), options...)
	if err != nil {
		return nil, asStatus(err)
	}
	return &pb.LeaseTimeToLiveResponse{Header: a.ResponseHeader, ID: r.ID, TTL: a.TTL, GrantedTTL: a.GrantedTTL, Keys: a.Keys}, nil
}

func (l *lease) LeaseLeases(ctx context.Context, _ *pb.LeaseLeasesRequest) (*pb.LeaseLeasesResponse, error) {
	c, err := l.clients.of(ctx)
	if err != nil {
		return nil, err
	}
	a, err := c.Leases(ctx)
	if err != nil {
		return nil, asStatus(err)
	}
	out := &pb.LeaseLeasesResponse{Header: a.ResponseHeader}
	for _, one := range a.Leases {
		out.Leases = append(out.Leases, &pb.LeaseStatus{ID: int64(one.ID)})
	}
	return out, nil
}

// renewals are how many leases of one stream are renewed at a time. Those that take longer than slowRenewal, since a cluster doesn't answer, don't count for
// that, up to maxSlow: the other leases live on in the clusters that do.
const (
	renewals    = 16
	maxSlow     = 1024
	slowRenewal = 20 * time.Millisecond
)

// LeaseKeepAlive answers as etcd does: a lease that is lost has a TTL of 0. It is lost everywhere if it
// is in one cluster. If a cluster can't be reached, the stream ends; etcd's clients open it again.
func (l *lease) LeaseKeepAlive(st grpc.BidiStreamingServer[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]) error {
	c, err := l.clients.of(st.Context())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(st.Context())
	defer cancel(nil)
	k := &keeping{st: st, c: c}
	var all sync.WaitGroup
	defer all.Wait()
	slots, begun := make(chan struct{}, renewals), make(chan struct{}, maxSlow)
	requests := make(chan int64)
	go func() {
		if err := k.receive(ctx, requests); err != nil {
			cancel(err)
		}
		close(requests)
	}()
	for {
		select {
		case id, more := <-requests:
			if !more {
				all.Wait() // a client that has no more requests reads the answers
				return asStatus(context.Cause(ctx))
			}
			begun <- struct{}{}
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-begun }()
				next := sync.OnceFunc(func() { <-slots })
				defer next()
				defer time.AfterFunc(slowRenewal, next).Stop()
				if err := k.keep(ctx, id); err != nil {
					cancel(err)
				}
			})
		case <-ctx.Done():
			return asStatus(context.Cause(ctx))
		}
	}
}

// keeping is one stream of keep-alives.
type keeping struct {
	st grpc.BidiStreamingServer[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]
	c  *compose.Client
	mu sync.Mutex // of answers
}

// receive returns nil when the client has ended its side of the stream.
func (k *keeping) receive(ctx context.Context, to chan<- int64) error {
	for {
		r, err := k.st.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		select {
		case to <- r.ID:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (k *keeping) keep(ctx context.Context, id int64) error {
	out := &pb.LeaseKeepAliveResponse{Header: &pb.ResponseHeader{}, ID: id}
	a, err := k.c.KeepAliveOnce(ctx, clientv3.LeaseID(id))
	switch {
	case err == nil:
		out.TTL = a.TTL
	case !errors.Is(err, rpctypes.ErrLeaseNotFound):
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.st.Send(out)
}
