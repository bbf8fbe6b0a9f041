package engine

import (
	"context"
	"math"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// OwnLease stands for the lease of the session by which a request goes.
const OwnLease = clientv3.LeaseID(math.MinInt64)

// PutAsync puts without waiting for the answer. It waits only when Config.Pending
// requests are unanswered.
func (s *Session) PutAsync(key, val string, opts ...clientv3.OpOption) *Future[*clientv3.PutResponse] {
	return s.put(context.Background(), key, val, opts)
}

// Put puts one key.
func (s *Session) Put(ctx context.Context, key, val string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	return s.put(ctx, key, val, opts).Wait(ctx)
}

func (s *Session) put(ctx context.Context, key, val string, opts []clientv3.OpOption) *Future[*clientv3.PutResponse] {
	f := new(putFuture)
	r := s.putRequest(f, key, val, opts)
	if err := s.send(ctx, &r); err != nil {
		f.fail(err)
	}
	return &f.Future
}

func (s *Session) putRequest(f *putFuture, key, val string, opts []clientv3.OpOption) request {
	if len(opts) > 0 {
		return s.requestOf(clientv3.OpPut(key, val, opts...), s.level, f)
	}
	return request{kind: stoapb.Kind_PUT, key: key, value: val, plain: true, to: f}
}

// DeleteAsync deletes without waiting for the answer.
func (s *Session) DeleteAsync(key string, opts ...clientv3.OpOption) *Future[*clientv3.DeleteResponse] {
	return s.delete(context.Background(), key, opts)
}

// Delete deletes a key, or the range that the options say.
func (s *Session) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	return s.delete(ctx, key, opts).Wait(ctx)
}

func (s *Session) delete(ctx context.Context, key string, opts []clientv3.OpOption) *Future[*clientv3.DeleteResponse] {
	f := new(deleteFuture)
	r := s.deleteRequest(f, key, opts)
	if err := s.send(ctx, &r); err != nil {
		f.fail(err)
	}
	return &f.Future
}

func (s *Session) deleteRequest(f *deleteFuture, key string, opts []clientv3.OpOption) request {
	if len(opts) > 0 {
		return s.requestOf(clientv3.OpDelete(key, opts...), s.level, f)
	}
	return request{kind: stoapb.Kind_DELETE_RANGE, key: key, plain: true, to: f}
}

// SyncAsync is a strict read of nothing: when it is answered, the session has
// seen all that was acknowledged to any client before it was sent, and its
// causal reads reflect that. The events of its ordered watches up to there have
// come. The answer is the revision that the session has seen.
func SyncAsync[T ~int64](s *Session) *Future[T] {
	return empty[T](context.Background(), s, stoapb.Kind_SYNC)
}

// Sync waits for SyncAsync.
func (s *Session) Sync(ctx context.Context) (revision int64, err error) {
	return empty[int64](ctx, s, stoapb.Kind_SYNC).Wait(ctx)
}

// Progress returns a revision at or below which no event of any of the session's
// watches is still to come.
func (s *Session) Progress(ctx context.Context) (revision int64, err error) {
	return empty[int64](ctx, s, stoapb.Kind_PROGRESS).Wait(ctx)
}

func empty[T ~int64](ctx context.Context, s *Session, kind stoapb.Kind) *Future[T] {
	f := new(revisionFuture[T])
	if err := s.send(ctx, &request{kind: kind, to: f}); err != nil {
		f.fail(err)
	}
	return &f.Future
}

// requestOf makes a request of an operation with options. The options are private
// to etcd's package; its KV turns them into messages, and hands these to recorder.
func (s *Session) requestOf(op clientv3.Op, level Level, to answerable) request {
	var rec recorder
	if _, err := clientv3.NewKVFromKVClient(&rec, nil).Do(context.Background(), op); err != nil {
		return request{kind: stoapb.Kind_KIND_UNSPECIFIED, to: to, refused: err}
	}
	return s.marshalled(rec.asked, level, to)
}

// marshalled makes a request of a message of etcd's API.
func (s *Session) marshalled(m proto.Message, level Level, to answerable) request {
	r := request{level: level, to: to}
	switch m := m.(type) {
	case *pb.PutRequest:
		r.kind, r.level = stoapb.Kind_PUT, Strict
		m.Lease = s.lease(m.Lease)
	case *pb.DeleteRangeRequest:
		r.kind, r.level = stoapb.Kind_DELETE_RANGE, Strict
	case *pb.RangeRequest:
		r.kind = stoapb.Kind_RANGE
		if m.Serializable {
			r.level = Fast
		}
	case *pb.TxnRequest:
		r.kind = stoapb.Kind_TXN
		if s.resolve(m) {
			r.level = Strict // it writes: its reply counts as seen at any level of reads
		}
	}
	r.body, r.refused = proto.Marshal(m)
	return r
}

// lease is the lease that a put means.
func (s *Session) lease(id int64) int64 {
	if id == int64(OwnLease) {
		return s.id
	}
	return id
}

// resolve puts the session's lease into the puts of a transaction, and tells
// whether it may write.
func (s *Session) resolve(t *pb.TxnRequest) (writes bool) {
	for _, ops := range [][]*pb.RequestOp{t.Success, t.Failure} {
		for _, op := range ops {
			switch o := op.Request.(type) {
			case *pb.RequestOp_RequestPut:
				o.RequestPut.Lease = s.lease(o.RequestPut.Lease)
				writes = true
			case *pb.RequestOp_RequestDeleteRange:
				writes = true
			case *pb.RequestOp_RequestTxn:
				writes = s.resolve(o.RequestTxn) || writes
			}
		}
	}
	return writes
}

// recorder is a KV service that records requests.
type recorder struct {
	pb.KVClient // for what Do never calls
	asked       proto.Message
}

func (r *recorder) Range(_ context.Context, in *pb.RangeRequest, _ ...grpc.CallOption) (*pb.RangeResponse, error) {
	r.asked = in
	return nil, nil
}

func (r *recorder) Put(_ context.Context, in *pb.PutRequest, _ ...grpc.CallOption) (*pb.PutResponse, error) {
	r.asked = in
	return nil, nil
}

func (r *recorder) DeleteRange(_ context.Context, in *pb.DeleteRangeRequest, _ ...grpc.CallOption) (*pb.DeleteRangeResponse, error) {
	r.asked = in
	return nil, nil
}

func (r *recorder) Txn(_ context.Context, in *pb.TxnRequest, _ ...grpc.CallOption) (*pb.TxnResponse, error) {
	r.asked = in
	return nil, nil
}
