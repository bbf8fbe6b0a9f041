package compose

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/stoa-kv/stoa/client"
)

// do makes the call of a request whose turn has come: a local read at the nearest member, and anything else, or what that
// member doesn't have, in the cluster's order.
func (e *calls) do(ctx context.Context, r *request) (proto.Message, error) {
	if r.epoch != e.l.epoch.Load() {
		return nil, ErrBehind
	}
	if r.session != nil && r.session.Err() != nil {
		return nil, &callerLeft{why: r.session.Err()}
	}
	if r.by.IsZero() {
		r.by = time.Now().Add(e.l.core.cfg.Timeout)
	}
	if !r.isLocal() {
		return e.decide(ctx, r)
	}
	if e.l.view != nil {
		return e.viewed(ctx, r)
	}
	floor := e.l.floor.Load()
	setLocal(r.message, true)
	m, err := e.attempt(ctx, e.l.cluster.nearest(), r, false)
	switch {
	case err == nil && revisionOf(m) >= floor:
		return m, nil
	case err == nil, errors.Is(rpctypes.Error(err), rpctypes.ErrFutureRev):
		e.l.core.stale.Add(1) // a member that is behind the revision seen, or perhaps behind the one that is asked for
	case isLearner(err): // a transaction: it serves reads of one range alone
	case ctx.Err() != nil || !isCutOff(err) || errors.Is(err, client.ErrRefused):
		return nil, err
	default:
		e.l.cluster.leave()
		if time.Until(r.by) <= 0 {
			return nil, err
		}
	}
	return e.decide(ctx, r)
}

// again repeats a local read, whose answer was of a lower revision than that of one before it.
func (e *calls) again(ctx context.Context, r *request) (proto.Message, error) {
	if e.l.view != nil {
		return e.do(ctx, r) // a glance was not called before, and the mirror may have caught up
	}
	return e.decide(ctx, r)
}

// decide makes a call that is ordered among all updates of the cluster: an update,
// or a linearizable read, which a member answers when it has applied all that was
// acknowledged before it was asked.
func (e *calls) decide(ctx context.Context, r *request) (proto.Message, error) {
	if r.kind != update {
		setLocal(r.message, false)
	}
	if e.l.view != nil { // the client's updates go over a session
		if err := e.l.twin.settle(ctx, r.by); err != nil {
			return nil, err
		}
	}
	seen := e.l.noted()
	refused := false // by a learner, which several requests may detect at once
	for try := 0; ; try++ {
		reaching, cancel := context.WithDeadline(ctx, r.by)
		by, err := e.l.cluster.deciding(reaching)
		cancel()
		if err != nil {
			return nil, err
		}
		m, err := e.attemptSynced(ctx, by, r, try > 0)
		if err == nil && revisionOf(m) < seen {
			e.l.goneBack(seen, revisionOf(m))
		}
		if err == nil && e.l.view != nil {
			e.l.view.home.Store(headerOf(m).GetClusterId())
		}
		switch {
		case err == nil || ctx.Err() != nil:
			return m, err
		case isLearner(err) && !refused:
			refused = true
			e.l.cluster.learner.Store(true)
		case errors.Is(err, client.ErrRefused):
			return nil, err
		case isCutOff(err):
			e.l.cluster.leave()
			if r.kind == update || try > 0 || time.Until(r.by) <= 0 {
				return nil, err
			}
		default:
			return nil, err
		}
	}
}

// isLearner reports that a member of an etcd cluster serves local reads only.
func isLearner(err error) bool {
	return rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner) ||
		err.Error() == rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner)
}

// attemptSynced is attempt. A transaction that only compares gets a read, whose answer is left out: etcd would answer it
// locally otherwise, and behind a sync of its own it could reach another member, which lags.
func (e *calls) attemptSynced(ctx context.Context, by *clientv3.Client, r *request, last bool) (proto.Message, error) {
	t, ok := r.message.(*pb.TxnRequest)
	if !ok || r.kind == update || hasReads(t) {
		return e.attempt(ctx, by, r, last)
	}
	with := *r
	with.message = &pb.TxnRequest{Compare: t.Compare, Success: []*pb.RequestOp{opOf(nothing(t.Compare[0].Key))}} // which the user may read
	m, err := e.attempt(ctx, by, &with, last)
	if err != nil {
		return nil, err
	}
	m.(*pb.TxnResponse).Responses = nil
	return m, nil
}

// attempt makes one call. A read gets half of the time that is left, so that there is
// some for another member, unless this is the last attempt.
func (e *calls) attempt(ctx context.Context, by *clientv3.Client, r *request, last bool) (proto.Message, error) {
	d := time.Until(r.by)
	if r.kind != update && !last && len(e.l.cluster.members) > 1 {
		d /= 2
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	ctx, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	defer giveUp(ctx, by, refuse).Stop()
	var to peer.Peer
	m, err := invoke(ctx, clientv3.RetryKVClient(by), r.message, &to)
	if err == nil {
		return m, nil
	}
	if errors.Is(context.Cause(ctx), client.ErrRefused) {
		err = client.ErrRefused // and not that the context ended
	} else {
		err = clientv3.ContextError(ctx, err)
	}
	if to.Addr == nil {
		err = fmt.Errorf("%w: %w", err, client.ErrNotSent)
	}
	return nil, err
}

// giveUp ends a call that reaches no member: etcd's client retries reads
// indefinitely.
func giveUp(ctx context.Context, by *clientv3.Client, refuse context.CancelCauseFunc) *time.Timer {
	return time.AfterFunc(refusedFor, func() {
		switch {
		case ctx.Err() != nil:
		case refuses(by):
			refuse(client.ErrRefused)
		default:
			giveUp(ctx, by, refuse)
		}
	})
}

// invoke makes a call; to is the member that it was sent to, if it was sent.
func invoke(ctx context.Context, kv pb.KVClient, m proto.Message, to *peer.Peer) (proto.Message, error) {
	all := grpc.MaxCallRecvMsgSize(math.MaxInt32)
	switch m := m.(type) {
	case *pb.RangeRequest:
		return kv.Range(ctx, m, all, grpc.Peer(to))
	case *pb.PutRequest:
		return kv.Put(ctx, m, grpc.Peer(to))
	case *pb.DeleteRangeRequest:
		return kv.DeleteRange(ctx, m, all, grpc.Peer(to))
	case *pb.TxnRequest:
		return kv.Txn(ctx, m, all, grpc.Peer(to))
	}
	return nil, errors.ErrUnsupported
}

// nothing is a read that shows nothing of a key: a sync.
func nothing(key []byte) *pb.RangeRequest {
	return &pb.RangeRequest{Key: key, CountOnly: true}
}

func setLocal(m proto.Message, local bool) {
	switch m := m.(type) {
	case *pb.RangeRequest:
		m.Serializable = local
	case *pb.TxnRequest:
		for _, ops := range [][]*pb.RequestOp{m.Success, m.Failure} {
			for _, op := range ops {
				switch o := op.Request.(type) {
				case *pb.RequestOp_RequestRange:
					o.RequestRange.Serializable = local
				case *pb.RequestOp_RequestTxn:
					setLocal(o.RequestTxn, local)
				}
			}
		}
	}
}

// hasReads reports whether a transaction has a read that isn't serializable to
// etcd.
func hasReads(t *pb.TxnRequest) bool { return len(t.Success)+len(t.Failure) > 0 }

func revisionOf(m proto.Message) int64 { return headerOf(m).GetRevision() }

func headerOf(m proto.Message) *pb.ResponseHeader {
	if of, ok := m.(interface{ GetHeader() *pb.ResponseHeader }); ok {
		return of.GetHeader()
	}
	return nil
}
