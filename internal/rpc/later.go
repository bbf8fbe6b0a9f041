package rpc

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/h2"
)

// laters are the handlers of the methods that wait for a commit, on stoa's own transport: no
// goroutine waits for it.
var laters = map[string]laterHandler{
	pb.KV_Put_FullMethodName: later((*kvServer).Put,
		func(_ *kvServer, r *pb.PutRequest) error { return checkPut(r) },
		func(*pb.PutRequest) bool { return true }),
	pb.KV_DeleteRange_FullMethodName: later((*kvServer).DeleteRange,
		func(_ *kvServer, r *pb.DeleteRangeRequest) error { return checkDelete(r) },
		func(r *pb.DeleteRangeRequest) bool { return len(r.GetRangeEnd()) == 0 }),
	pb.KV_Txn_FullMethodName: later((*kvServer).Txn, (*kvServer).checkTxn, briefTxn),
}

// later makes a handler of a method. Answers that aren't known to be brief are left to wait, so
// that the goroutine of all the others needn't encode them.
func later[T any, R interface {
	*T
	proto.Message
}, A any](wait func(*kvServer, context.Context, R) (A, error), check func(*kvServer, R) error, brief func(R) bool) laterHandler {
	return func(srv any, ctx context.Context, dec func(any) error, postpone func() ready) (any, error) {
		s, r := srv.(*kvServer), R(new(T))
		if err := dec(r); err != nil {
			return nil, err
		}
		if !brief(r) {
			h2.Detach(ctx)
			return wait(s, ctx, r)
		}
		if err := check(s, r); err != nil {
			return nil, err
		}
		ready := postpone()
		if ready == nil { // not a call of that transport
			return wait(s, ctx, r)
		}
		s.kv.Write(ctx, r, func(resp Answer, err error) {
			ready(func() (any, error) { return filled(s.header, resp, err) })
		})
		return nil, nil
	}
}

// briefValues is how many values, of whatever size, the answer to a brief transaction has at most.
const briefValues = 4

// briefTxn reports whether a transaction's answer has a few values at most, and it has neither ranges nor
// transactions inside.
func briefTxn(r *pb.TxnRequest) bool {
	values := 0
	for _, ops := range [2][]*pb.RequestOp{r.GetSuccess(), r.GetFailure()} {
		for _, op := range ops {
			get, del := op.GetRequestRange(), op.GetRequestDeleteRange()
			if op.GetRequestTxn() != nil || len(get.GetRangeEnd()) > 0 || len(del.GetRangeEnd()) > 0 {
				return false
			}
			if get != nil || del.GetPrevKv() || op.GetRequestPut().GetPrevKv() {
				values++
			}
		}
	}
	return values <= briefValues
}
