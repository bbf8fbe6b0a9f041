package engine

import (
	"context"
	"io"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Etcd is an etcd client whose KV, Watcher and Lease go through the session: for
// code that takes a *clientv3.Client, as the packages below etcd's client/v3 do.
// Closing it leaves session and client open; it ends with the session.
func (s *Session) Etcd() *clientv3.Client {
	c := clientv3.NewCtxClient(s.ctx, clientv3.WithZapLogger(s.c.GetLogger()))
	c.KV, c.Watcher, c.Lease = s.KV(), s.Watcher(), s.Lease()
	c.Cluster, c.Auth, c.Maintenance = s.c.Cluster, s.c.Auth, s.c.Maintenance
	return c
}

// KV is etcd's KV at the reader's level.
func (r Reader) KV() clientv3.KV { return clientv3.NewKVFromKVClient(kvOver{r}, nil) }

// kvOver is etcd's KV service over a session: etcd's client is built on this
// service.
type kvOver struct{ r Reader }

func (k kvOver) Range(ctx context.Context, in *pb.RangeRequest, _ ...grpc.CallOption) (*pb.RangeResponse, error) {
	got, err := inPlace(ctx, func() *Future[*clientv3.GetResponse] {
		f := new(getFuture)
		return ask(ctx, k.r, in, f, &f.Future)
	})
	return (*pb.RangeResponse)(got), err
}

func (k kvOver) Put(ctx context.Context, in *pb.PutRequest, _ ...grpc.CallOption) (*pb.PutResponse, error) {
	got, err := inPlace(ctx, func() *Future[*clientv3.PutResponse] {
		f := new(putFuture)
		return ask(ctx, k.r, in, f, &f.Future)
	})
	return (*pb.PutResponse)(got), err
}

func (k kvOver) DeleteRange(ctx context.Context, in *pb.DeleteRangeRequest, _ ...grpc.CallOption) (*pb.DeleteRangeResponse, error) {
	got, err := inPlace(ctx, func() *Future[*clientv3.DeleteResponse] {
		f := new(deleteFuture)
		return ask(ctx, k.r, in, f, &f.Future)
	})
	return (*pb.DeleteRangeResponse)(got), err
}

func (k kvOver) Txn(ctx context.Context, in *pb.TxnRequest, _ ...grpc.CallOption) (*pb.TxnResponse, error) {
	got, err := inPlace(ctx, func() *Future[*clientv3.TxnResponse] {
		f := new(txnFuture)
		return ask(ctx, k.r, in, f, &f.Future)
	})
	return (*pb.TxnResponse)(got), err
}

func ask[T any](ctx context.Context, r Reader, in proto.Message, to answerable, f *Future[T]) *Future[T] {
	q := r.s.marshalled(in, r.level, to)
	if err := r.s.send(ctx, &q); err != nil {
		f.fail(err)
	}
	return f
}

// RangeStream answers in one piece: so does the session.
func (k kvOver) RangeStream(ctx context.Context, in *pb.RangeRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[pb.RangeStreamResponse], error) {
	got, err := k.Range(ctx, in)
	if err != nil {
		return nil, err
	}
	return &onePiece{streamOver: streamOver{ctx}, piece: &pb.RangeStreamResponse{RangeResponse: got}}, nil
}

// Compact is no request of a session. It goes to the cluster when all that was
// sent before has been answered.
func (k kvOver) Compact(ctx context.Context, in *pb.CompactionRequest, opts ...grpc.CallOption) (*pb.CompactionResponse, error) {
	if _, err := k.r.s.Sync(ctx); err != nil {
		return nil, err
	}
	return pb.NewKVClient(k.r.s.c.ActiveConnection()).Compact(ctx, in, opts...)
}

// onePiece is a stream of one message.
type onePiece struct {
	streamOver
	piece *pb.RangeStreamResponse
}

func (p *onePiece) Recv() (*pb.RangeStreamResponse, error) {
	if p.piece == nil {
		return nil, io.EOF
	}
	piece := p.piece
	p.piece = nil
	return piece, nil
}

// streamOver is the part of a gRPC stream that has nothing to do with gRPC.
type streamOver struct{ ctx context.Context }

func (s streamOver) Context() context.Context   { return s.ctx }
func (streamOver) Header() (metadata.MD, error) { return nil, nil }
func (streamOver) Trailer() metadata.MD         { return nil }
func (streamOver) CloseSend() error             { return nil }
func (streamOver) SendMsg(any) error            { return errNotGRPC }
func (streamOver) RecvMsg(any) error            { return errNotGRPC }

// Lease is etcd's Lease, for leases beside the session's own. Grants and
// keep-alives go to the cluster directly, revocations when all earlier requests
// of the session were answered; later reads of the session reflect them.
func (s *Session) Lease() clientv3.Lease {
	return &leaseOver{Lease: clientv3.NewLease(s.c.Client), s: s}
}

type leaseOver struct {
	clientv3.Lease
	s *Session
}

func (l *leaseOver) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	granted, err := l.Lease.Grant(ctx, ttl)
	if err == nil && granted.ResponseHeader != nil {
		l.s.See(granted.Revision)
	}
	return granted, err
}

func (l *leaseOver) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	if _, err := l.s.Sync(ctx); err != nil {
		return nil, err
	}
	revoked, err := l.Lease.Revoke(ctx, id)
	if err == nil && revoked.Header != nil {
		l.s.See(revoked.Header.Revision)
	}
	return revoked, err
}

// TimeToLive waits for the session's earlier requests, which may put the keys
// that it lists.
func (l *leaseOver) TimeToLive(ctx context.Context, id clientv3.LeaseID, opts ...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse, error) {
	if _, err := l.s.Sync(ctx); err != nil {
		return nil, err
	}
	return l.Lease.TimeToLive(ctx, id, opts...)
}
