package composed

import (
	"context"

	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// kv is etcd's KV service.
type kv struct {
	pb.UnimplementedKVServer
	clients *clients
}

// service is the composition's KV service as a call's client has it.
func (k *kv) service(ctx context.Context, synced bool) (pb.KVClient, error) {
	c, err := k.clients.of(ctx)
	if err != nil {
		return nil, err
	}
	if synced {
		c = c.Synced()
	}
	return c.KVService(), nil
}

func (k *kv) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if len(r.Key) == 0 {
		return nil, rpctypes.ErrGRPCEmptyKey
	}
	s, err := k.service(ctx, !r.Serializable)
	if err != nil {
		return nil, err
	}
	a, err := s.Range(ctx, r)
	return a, asStatus(err)
}

// RangeStream answers in one piece.
func (k *kv) RangeStream(r *pb.RangeRequest, st grpc.ServerStreamingServer[pb.RangeStreamResponse]) error {
	a, err := k.Range(st.Context(), r)
	if err != nil {
		return err
	}
	return st.Send(&pb.RangeStreamResponse{RangeResponse: a})
}

func (k *kv) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	if len(r.Key) == 0 {
		return nil, rpctypes.ErrGRPCEmptyKey
	}
	s, err := k.service(ctx, false)
	if err != nil {
		return nil, err
	}
	a, err := s.Put(ctx, r)
	return a, asStatus(err)
}

func (k *kv) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	if len(r.Key) == 0 {
		return nil, rpctypes.ErrGRPCEmptyKey
	}
	s, err := k.service(ctx, false)
	if err != nil {
		return nil, err
	}
	a, err := s.DeleteRange(ctx, r)
	return a, asStatus(err)
}

func (k *kv) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	s, err := k.service(ctx, !serializable(r))
	if err != nil {
		return nil, err
	}
	a, err := s.Txn(ctx, r)
	return a, asStatus(err)
}

// serializable is etcd's rule for transactions that only read: all their ranges are.
func serializable(r *pb.TxnRequest) bool {
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			if of := op.GetRequestRange(); of == nil || !of.Serializable {
				return false
			}
		}
	}
	return true
}

func (k *kv) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	s, err := k.service(ctx, false)
	if err != nil {
		return nil, err
	}
	_, err = s.Compact(ctx, r)
	return nil, asStatus(err)
}
