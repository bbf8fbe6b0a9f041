package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/watch"
)

// queues are what locks and elections are made of: keys NAME/LEASE, of which the oldest
// is the owner's. Package concurrency of etcd's client has the same keys, and does the
// same requests. Here they are done on behalf of the caller, whose context they carry.
type queues struct {
	*kvServer
	watcher Watcher
	lessor  Lessor
}

// queueTTL is the seconds of a lease that is granted for a caller who names none.
const queueTTL = 60

// removeLimit bounds the time for the deletion of a key whose caller doesn't wait for it.
const removeLimit = 5 * time.Second

// leased returns the lease, or a new one for 0.
func (q *queues) leased(ctx context.Context, lease int64) (int64, error) {
	if lease != 0 {
		return lease, nil
	}
	resp, err := q.lessor.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: queueTTL})
	if err != nil {
		return 0, toStatus(err)
	}
	return resp.ID, nil
}

// place is a key in a queue.
type place struct {
	prefix, key []byte
	rev         int64 // at which the key was created
	lease       int64
}

// placeIn is where a lease stands, or would stand, in the queue of a name.
func placeIn(name []byte, lease int64) place {
	prefix := append(name[:len(name):len(name)], '/')
	return place{prefix: prefix, key: fmt.Appendf(prefix[:len(prefix):len(prefix)], "%x", lease), lease: lease}
}

func (p *place) createdAt(rev int64) *pb.Compare {
	return &pb.Compare{Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL, Key: p.key,
		TargetUnion: &pb.Compare_CreateRevision{CreateRevision: rev}}
}

func (p *place) put(value []byte) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: p.key, Value: value, Lease: p.lease}}}
}

func read(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

// oldest is a request for the owner's key.
func (p *place) oldest() *pb.RangeRequest {
	return &pb.RangeRequest{Key: p.prefix, RangeEnd: prefixEnd(p.prefix), Limit: 1,
		SortOrder: pb.RangeRequest_ASCEND, SortTarget: pb.RangeRequest_CREATE}
}

// prefixEnd is for a prefix that ends in a slash.
func prefixEnd(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	end[len(end)-1]++
	return end
}

// The requests that follow the first one of a call are a part of it: if they counted for the
// rates of quotas themselves, a caller over its rate would leave its key behind.

// enter puts the key, unless it is there already, and finds out its creation revision.
// The first response of a failed transaction has the key that is there.
func (q *queues) enter(ctx context.Context, p *place, value []byte, more ...*pb.RequestOp) (*pb.TxnResponse, error) {
	resp, err := q.Txn(ctx, &pb.TxnRequest{
		Compare: []*pb.Compare{p.createdAt(0)},
		Success: append([]*pb.RequestOp{p.put(value)}, more...),
		Failure: append([]*pb.RequestOp{read(&pb.RangeRequest{Key: p.key})}, more...),
	})
	if err != nil {
		return nil, err
	}
	p.rev = resp.Header.Revision
	if !resp.Succeeded {
		own := found(resp, 0)
		if len(own) == 0 {
			return nil, toStatus(fault.Internal.With("an extension answers for the key of a lock or an election"))
		}
		p.rev = own[0].GetCreateRevision()
	}
	return resp, nil
}

// found is the keys in one response of a transaction. There may be none where there should
// be: an extension can have answered.
func found(resp *pb.TxnResponse, i int) []*mvccpb.KeyValue {
	if i >= len(resp.Responses) {
		return nil
	}
	return resp.Responses[i].GetResponseRange().GetKvs()
}

// deleteOwn deletes the key if it is still the one that the caller has put.
func (q *queues) deleteOwn(ctx context.Context, p *place) (*pb.ResponseHeader, error) {
	resp, err := q.Txn(ctx, &pb.TxnRequest{Compare: []*pb.Compare{p.createdAt(p.rev)}, Success: []*pb.RequestOp{
		{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: p.key}}}}})
	if err != nil {
		return nil, err
	}
	return resp.Header, nil
}

// remove is deleteOwn on behalf of a caller who waits no longer, and may be gone. If it
// fails the key is there until its lease ends.
func (q *queues) remove(ctx context.Context, p *place) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeLimit)
	defer cancel()
	_, _ = q.deleteOwn(ctx, p)
}

// await waits until all keys that were created before the place's are deleted. It
// always waits for the one right before, so that a deletion wakes one waiter.
func (q *queues) await(ctx context.Context, p *place) error {
	for {
		before, err := q.Range(ctx, &pb.RangeRequest{Key: p.prefix, RangeEnd: prefixEnd(p.prefix), Limit: 1,
			SortOrder: pb.RangeRequest_DESCEND, SortTarget: pb.RangeRequest_CREATE, MaxCreateRevision: p.rev - 1})
		if err != nil {
			return err
		}
		if len(before.Kvs) == 0 {
			return nil
		}
		err = q.follow(ctx, &pb.WatchCreateRequest{
			Key: before.Kvs[0].GetKey(), StartRevision: before.Header.Revision + 1, Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT},
		}, func(*pb.ResponseHeader, *mvccpb.Event) (bool, error) { return true, nil })
		if err != nil {
			return err
		}
	}
}

// awaitTurn is await for a caller who has to know that the key is still there: its lease may have ended meanwhile, and with it
// the caller's turn. It returns the header of the read that has found the key, nil if it is gone. The key of a caller who doesn't
// wait until then is removed.
func (q *queues) awaitTurn(ctx context.Context, p *place) (*pb.ResponseHeader, error) {
	err := q.await(ctx, p)
	var own *pb.RangeResponse
	if err == nil {
		own, err = q.Range(ctx, &pb.RangeRequest{Key: p.key})
	}
	if err != nil {
		q.remove(ctx, p)
		return nil, err
	}
	if len(own.Kvs) == 0 || own.Kvs[0].GetCreateRevision() != p.rev {
		return nil, nil
	}
	return own.Header, nil
}

// follow calls take with every event of a watch, until that returns true or an error. It
// returns nil also when the watch has ended for a reason that another read and another
// watch overcome.
func (q *queues) follow(ctx context.Context, r *pb.WatchCreateRequest, take func(*pb.ResponseHeader, *mvccpb.Event) (enough bool, err error)) error {
	hub := q.watcher.NewWatchStream(ctx)
	defer hub.Close()
	first, user, err := q.watcher.OpenWatch(ctx, r)
	if err != nil {
		return toStatus(err)
	}
	hub.As(user)
	if n := hub.CreateWith(r, first); n > 0 {
		defer time.AfterFunc(openWithin, func() { hub.Hasten(n) }).Stop()
	}
	for {
		resp, err := hub.Recv(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, watch.ErrClosed):
			return nil
		case err != nil:
			return toStatus(err)
		case resp.Cause != nil:
			return toStatus(resp.Cause)
		case resp.Canceled && resp.CompactRevision > 0:
			return nil
		case resp.Canceled:
			return toStatus(fault.Internal.With(resp.CancelReason))
		}
		q.identify(resp.Header)
		for _, ev := range resp.Events {
			if enough, err := take(resp.Header, ev); enough || err != nil {
				return err
			}
		}
	}
}

// textOnly turns the errors that etcd has a text for into plain errors with that text: etcd's
// lock and election services are clients of the others, and that is how its client's errors
// leave them.
func textOnly(err error) error {
	var known rpctypes.EtcdError
	if errors.As(rpctypes.Error(err), &known) {
		return status.Error(codes.Unknown, known.Error())
	}
	return err
}
