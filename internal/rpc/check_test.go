package rpc

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"
)

func opPut(k string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(k)}}}
}

func opDel(k, end string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(k), RangeEnd: []byte(end)}}}
}

func opGet(k string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(k)}}}
}

func opTxn(then, orElse []*pb.RequestOp) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Success: then, Failure: orElse}}}
}

func ops(o ...*pb.RequestOp) []*pb.RequestOp { return o }

func TestCheckSimple(t *testing.T) {
	key := []byte("a")
	for _, c := range []struct {
		got, want error
	}{
		{checkRange(&pb.RangeRequest{Key: key}), nil},
		{checkRange(&pb.RangeRequest{}), rpctypes.ErrGRPCEmptyKey},
		{checkRange(&pb.RangeRequest{Key: key, SortOrder: 3}), rpctypes.ErrGRPCInvalidSortOption},
		{checkRange(&pb.RangeRequest{Key: key, SortTarget: -1}), rpctypes.ErrGRPCInvalidSortOption},
		{checkRange(&pb.RangeRequest{Key: key, SortTarget: pb.RangeRequest_VALUE, SortOrder: pb.RangeRequest_DESCEND}), nil},
		{checkPut(&pb.PutRequest{}), rpctypes.ErrGRPCEmptyKey},
		{checkPut(&pb.PutRequest{Key: key, IgnoreValue: true, Value: key}), rpctypes.ErrGRPCValueProvided},
		{checkPut(&pb.PutRequest{Key: key, IgnoreLease: true, Lease: 1}), rpctypes.ErrGRPCLeaseProvided},
		{checkPut(&pb.PutRequest{Key: key, IgnoreLease: true, IgnoreValue: true}), nil},
		{checkDelete(&pb.DeleteRangeRequest{}), rpctypes.ErrGRPCEmptyKey},
		{checkDelete(&pb.DeleteRangeRequest{Key: key}), nil},
		{checkTxn(&pb.TxnRequest{}, 0), nil},
		{checkTxn(&pb.TxnRequest{Compare: []*pb.Compare{{}}}, 1), rpctypes.ErrGRPCEmptyKey},
		{checkTxn(&pb.TxnRequest{Success: ops(opPut("a"), opPut("b"))}, 1), rpctypes.ErrGRPCTooManyOps},
		{checkTxn(&pb.TxnRequest{Failure: ops(opGet(""))}, 1), rpctypes.ErrGRPCEmptyKey},
		{checkTxn(&pb.TxnRequest{Failure: ops(&pb.RequestOp{})}, 1), rpctypes.ErrGRPCKeyNotFound},
		{checkTxn(&pb.TxnRequest{Success: ops(opTxn(ops(opPut("a")), nil))}, 1), rpctypes.ErrGRPCTooManyOps},
		{checkTxn(&pb.TxnRequest{Success: ops(opTxn(ops(opPut("a")), nil))}, 2), nil},
		{checkTxn(&pb.TxnRequest{Success: ops(opTxn(ops(opPut("")), nil))}, 2), rpctypes.ErrGRPCEmptyKey},
	} {
		require.Equal(t, c.want, c.got)
	}
}

func TestCheckOverlaps(t *testing.T) {
	for _, c := range []struct {
		name string
		ops  []*pb.RequestOp
		ok   bool
	}{
		{"one put", ops(opPut("a")), true},
		{"put twice", ops(opPut("a"), opPut("a")), false},
		{"different puts", ops(opPut("a"), opPut("b"), opGet("a")), true},
		{"delete and put", ops(opPut("a"), opDel("a", "")), false},
		{"delete range and put", ops(opDel("a", "c"), opPut("b")), false},
		{"delete range beside put", ops(opDel("a", "c"), opPut("c")), true},
		{"deletes overlap", ops(opDel("a", "c"), opDel("b", "")), true},
		{"delete from key on is not seen", ops(opDel("a", "\x00"), opPut("b")), true},
		{"put in both branches", ops(opTxn(ops(opPut("a")), ops(opPut("a")))), true},
		{"put in branch and beside", ops(opTxn(ops(opPut("a")), nil), opPut("a")), false},
		{"put in branches of two", ops(opTxn(ops(opPut("a")), nil), opTxn(nil, ops(opPut("a")))), false},
		{"delete beside, put in branch", ops(opTxn(ops(opPut("a")), nil), opDel("a", "b")), false},
		{"delete in branch, put beside", ops(opTxn(nil, ops(opDel("a", "b"))), opPut("a")), false},
		{"delete in one, put in a later one", ops(opTxn(ops(opDel("a", "")), nil), opTxn(ops(opPut("a")), nil)), false},
		{"put in one, delete in a later one", ops(opTxn(ops(opPut("a")), nil), opTxn(ops(opDel("a", "")), nil)), true},
		{"put and delete in different branches", ops(opTxn(ops(opPut("a")), ops(opDel("a", "")))), true},
		{"twice inside", ops(opTxn(ops(opPut("a"), opPut("a")), nil)), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, r := range []*pb.TxnRequest{{Success: c.ops}, {Failure: c.ops}} {
				err := checkOverlaps(r)
				if c.ok {
					require.NoError(t, err)
				} else {
					require.Equal(t, rpctypes.ErrGRPCDuplicateKey, err)
				}
			}
		})
	}
}

// FuzzCheckTxn feeds what may come over the wire: it must be answered, not
// crash the server.
func FuzzCheckTxn(f *testing.F) {
	for _, r := range []*pb.TxnRequest{
		{Success: ops(opPut("a"), opDel("a", "b"), opTxn(ops(opGet("x")), ops(opPut("y"))))},
		{Compare: []*pb.Compare{{Key: []byte("a")}}, Failure: ops(&pb.RequestOp{}, opTxn(nil, nil))},
	} {
		b, err := proto.Marshal(r)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &pb.TxnRequest{}
		if proto.Unmarshal(b, r) != nil || checkTxn(r, 128) != nil {
			return
		}
		_ = checkOverlaps(r)
	})
}
