package compose

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/mirror"
	mirrored "github.com/stoa-kv/stoa/client/mirror/cluster"
)

// view reads mirrored keys of one cluster, their home, in another one. An answer is what home
// had at the revision of the mirror's mark: it has that revision, and its keys those of home.
//
// A view answers no more than a member of home that lags would. An answer below the
// revision that the client has seen of home is thrown away, and the read is repeated at home;
// so is every read that a mirror can't answer: because it is being copied, is of other keys,
// or is not reached.
type view struct {
	of   *cluster      // where the mirrors are
	home atomic.Uint64 // ID of the keys' home, 0: not known yet
	away atomic.Int64  // until when it isn't asked again, in nanoseconds since 1970
	last atomic.Pointer[readMark]
}

// readMark is a mark as it was last read: most reads find the same again.
type readMark struct {
	value string
	mirror.Mark
}

// viewTimeout bounds a read at a view: it is next to the client, and home can answer, too.
const viewTimeout = time.Second

// viewed makes the call of a local read.
func (e *calls) viewed(ctx context.Context, r *request) (proto.Message, error) {
	floor := e.l.floor.Load()
	m, err := e.l.view.read(ctx, r)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, err
	case m != nil && m.Header.Revision >= floor:
		e.l.core.mirrored.Add(1)
		return m, nil
	case m != nil:
		e.l.core.stale.Add(1)
	}
	return e.decide(ctx, r)
}

// read returns nil if the mirror can't answer.
func (v *view) read(ctx context.Context, r *request) (*pb.RangeResponse, error) {
	if r.mirrored == nil || v.home.Load() == 0 || time.Now().UnixNano() < v.away.Load() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, min(viewTimeout, time.Until(r.by)/2)) // the rest is for home
	defer cancel()
	near, _, err := v.of.connect(ctx)
	if err != nil {
		return nil, v.failed(err)
	}
	asked := r.message.(*pb.RangeRequest)
	a, err := clientv3.RetryKVClient(near.Client).Txn(ctx, atMark(r.mirrored.mark, asked), grpc.MaxCallRecvMsgSize(math.MaxInt32))
	if err != nil {
		return nil, v.failed(err)
	}
	m, ok := v.mark(a)
	if !ok || m.Phase != mirror.At || m.Source != v.home.Load() || m.Keys != r.mirrored.said {
		return nil, nil
	}
	got := a.Responses[1].GetResponseRange()
	for _, kv := range got.Kvs {
		if err := mirrored.Unstamp(kv); err != nil {
			return nil, nil // it was written by something else: home has the key
		}
		if asked.KeysOnly {
			kv.Value = nil
		}
	}
	got.Header = &pb.ResponseHeader{ClusterId: m.Source, Revision: m.Revision}
	return got, nil
}

// failed keeps further reads from waiting for the mirror, for a while.
func (v *view) failed(err error) error {
	if !errors.Is(err, context.Canceled) {
		v.away.Store(time.Now().Add(backAfter).UnixNano())
	}
	return err
}

// atMark reads keys and their mirror's mark at one moment. Values are needed for the stamps
// behind them.
func atMark(mark string, asked *pb.RangeRequest) *pb.TxnRequest {
	keys := &pb.RangeRequest{
		Key: asked.Key, RangeEnd: asked.RangeEnd, Limit: asked.Limit, SortOrder: asked.SortOrder,
		CountOnly: asked.CountOnly, Serializable: true,
	}
	return &pb.TxnRequest{Success: []*pb.RequestOp{
		{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(mark), Serializable: true}}},
		{Request: &pb.RequestOp_RequestRange{RequestRange: keys}},
	}}
}

// mark is the mark in an answer to atMark; false if there is none.
func (v *view) mark(a *pb.TxnResponse) (*readMark, bool) {
	if len(a.Responses) != 2 {
		return nil, false
	}
	kvs := a.Responses[0].GetResponseRange().GetKvs()
	if len(kvs) == 0 {
		return nil, false
	}
	if last := v.last.Load(); last != nil && last.value == string(kvs[0].Value) {
		return last, true
	}
	m, err := mirror.ParseMark(kvs[0].Value)
	if err != nil {
		return nil, false
	}
	read := &readMark{string(kvs[0].Value), m}
	v.last.Store(read)
	return read, true
}
