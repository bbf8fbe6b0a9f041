package apply

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

func TestSerializable(t *testing.T) {
	read := func(serializable bool) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("a"), Serializable: serializable}}}
	}
	inner := func(ops ...*pb.RequestOp) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Success: ops}}}
	}
	for _, c := range []struct {
		what string
		txn  *pb.TxnRequest
		want bool
	}{
		{"compares only", &pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte("a")}}}, false},
		{"and so inside", &pb.TxnRequest{Success: []*pb.RequestOp{inner()}}, false},
		{"one read", &pb.TxnRequest{Failure: []*pb.RequestOp{read(true)}}, true},
		{"one of two is strict", &pb.TxnRequest{Success: []*pb.RequestOp{read(true)}, Failure: []*pb.RequestOp{read(false)}}, false},
		{"a strict one inside", &pb.TxnRequest{Success: []*pb.RequestOp{read(true), inner(read(false))}}, false},
		{"all inside", &pb.TxnRequest{Success: []*pb.RequestOp{inner(read(true))}}, true},
	} {
		require.Equal(t, c.want, Serializable(c.txn), c.what)
	}
}
