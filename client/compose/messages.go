package compose

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// KVService is etcd's KV service as its generated code has it, for programs that pass on requests of
// others: they are in this client's order, and lose no field. A request belongs to the client, which
// may change it. Call options are ignored, and RangeStream and Compact refused.
func (c *Client) KVService() pb.KVClient { return messages{c} }

type messages struct{ c *Client }

func (m messages) Range(ctx context.Context, in *pb.RangeRequest, _ ...grpc.CallOption) (*pb.RangeResponse, error) {
	a, err := m.c.ask(ctx, in)
	out, _ := a.(*pb.RangeResponse)
	return out, err
}

func (m messages) Put(ctx context.Context, in *pb.PutRequest, _ ...grpc.CallOption) (*pb.PutResponse, error) {
	a, err := m.c.ask(ctx, in)
	out, _ := a.(*pb.PutResponse)
	return out, err
}

func (m messages) DeleteRange(ctx context.Context, in *pb.DeleteRangeRequest, _ ...grpc.CallOption) (*pb.DeleteRangeResponse, error) {
	a, err := m.c.ask(ctx, in)
	out, _ := a.(*pb.DeleteRangeResponse)
	return out, err
}

func (m messages) Txn(ctx context.Context, in *pb.TxnRequest, _ ...grpc.CallOption) (*pb.TxnResponse, error) {
	a, err := m.c.ask(ctx, in)
	out, _ := a.(*pb.TxnResponse)
	return out, err
}

func (m messages) RangeStream(context.Context, *pb.RangeRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[pb.RangeStreamResponse], error) {
	return nil, fmt.Errorf("%w: a range as a stream; Range reads it in one piece", ErrNotOverSpan)
}

func (m messages) Compact(ctx context.Context, in *pb.CompactionRequest, _ ...grpc.CallOption) (*pb.CompactionResponse, error) {
	_, err := m.c.Compact(ctx, in.Revision)
	return nil, err
}
