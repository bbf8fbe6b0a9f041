package rpc

import (
	"context"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/memory"
)

type kvServer struct {
	pb.UnsafeKVServer
	header
	kv     KV
	maxOps int // in one level of a transaction
	chunk  int // bytes that a chunk of RangeStream aims at
	memory *memory.Budget
}

// kvService is etcd's, but for a Range that is answered by a kvwire.RangeResponse.
func kvService() grpc.ServiceDesc {
	desc := pb.KV_ServiceDesc
	desc.Methods = slices.Clone(desc.Methods)
	i := slices.IndexFunc(desc.Methods, func(m grpc.MethodDesc) bool { return m.MethodName == "Range" })
	desc.Methods[i].Handler = func(srv any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		r := new(pb.RangeRequest)
		if err := dec(r); err != nil {
			return nil, err
		}
		return answer(srv.(*kvServer).find(ctx, r))
	}
	return desc
}

// answer keeps a missing answer from becoming an interface that isn't nil.
func answer(resp *kvwire.RangeResponse, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// Range implements pb.KVServer. Clients' requests don't come here, but those of locks and
// elections; see kvService.
func (s *kvServer) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	resp, err := s.find(ctx, r)
	return resp.Message(), err
}

func (s *kvServer) find(ctx context.Context, r *pb.RangeRequest) (*kvwire.RangeResponse, error) {
	if err := checkRange(r); err != nil {
		return nil, err
	}
	if !r.Serializable && s.info.IsLearner() {
		return nil, rpctypes.ErrGRPCNotSupportedForLearner
	}
	resp, err := s.kv.Range(ctx, r)
	if err != nil {
		return nil, toStatus(err)
	}
	if err := s.fits(resp); err != nil {
		return nil, err
	}
	return resp, s.fill(resp.Header)
}

// fits refuses an answer for which there is no memory. It exists only as references to the keys
// yet.
func (s *kvServer) fits(resp *kvwire.RangeResponse) error {
	if s.memory.Tight() && !s.memory.Fits(int64(resp.Size())) {
		return rpctypes.ErrGRPCRequestTooManyRequests
	}
	return nil
}

func (s *kvServer) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	if err := checkPut(r); err != nil {
		return nil, err
	}
	resp, err := s.kv.Put(ctx, r)
	return filled(s.header, resp, err)
}

func (s *kvServer) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	if err := checkDelete(r); err != nil {
		return nil, err
	}
	resp, err := s.kv.DeleteRange(ctx, r)
	return filled(s.header, resp, err)
}

func (s *kvServer) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := s.checkTxn(r); err != nil {
		return nil, err
	}
	resp, err := s.kv.Txn(ctx, r)
	return filled(s.header, resp, err)
}

func (s *kvServer) checkTxn(r *pb.TxnRequest) error {
	if err := checkTxn(r, s.maxOps); err != nil {
		return err
	}
	return checkOverlaps(r) // only now, when the number of operations is known to be bounded
}

func (s *kvServer) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	resp, err := s.kv.Compact(ctx, r)
	return filled(s.header, resp, err)
}
