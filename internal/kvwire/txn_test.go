package kvwire

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

var marshal = proto.MarshalOptions{Deterministic: true}.Marshal

// What is read by hand is what protobuf reads, and is encoded as protobuf encodes it.
func FuzzReadTxn(f *testing.F) {
	for _, m := range optimistic() {
		raw, err := proto.Marshal(m)
		require.NoError(f, err)
		f.Add(raw)
		f.Add(append(raw, raw...))
		f.Add(append(raw, 4<<3, 1))
		f.Add(raw[:len(raw)-1])
		f.Add(append(raw, tagCompare, 4, 6<<3, 1, 5<<3, 1)) // two of a union
		f.Add(append(raw, tagSuccess, 4, tagPut, 0, tagDelete, 0))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got := new(pb.TxnRequest)
		agree(t, raw, ReadTxn, got, new(pb.TxnRequest))
		if a := ReadTxnAnswer(raw); a != nil {
			var want pb.TxnResponse
			require.NoError(t, proto.Unmarshal(raw, &want))
			require.True(t, proto.Equal(&want, a), "%v is not %v", &want, a)
		}
	})
}

// optimistic are transactions as clients send them that know an object's revision.
func optimistic() []*pb.TxnRequest {
	key := []byte("/registry/pods/default/web")
	ifRevision := func(rev int64) []*pb.Compare {
		return []*pb.Compare{{Key: key, Target: pb.Compare_MOD, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_ModRevision{ModRevision: rev}}}
	}
	put := []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key, Value: []byte("v"), Lease: 7}}}}
	get := []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key}}}}
	remove := []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: key}}}}
	return []*pb.TxnRequest{
		{Compare: ifRevision(0), Success: put}, {Compare: ifRevision(1 << 40), Success: put, Failure: get}, {Compare: ifRevision(9), Success: remove, Failure: get},
	}
}

func TestPutBytes(t *testing.T) {
	put := func(key, value string) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte(value)}}}
	}
	nested := func(m *pb.TxnRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: m}}
	}
	get := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("key")}}}
	remove := &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("key")}}}
	ops := func(ops ...*pb.RequestOp) []*pb.RequestOp { return ops }
	for want, m := range map[int]*pb.TxnRequest{
		0: {Success: ops(remove, nested(&pb.TxnRequest{Failure: ops(remove)})), Failure: ops(get, nil)},
		1: {Failure: ops(put("k", ""))},
		7: {Success: ops(put("k", "12"), get, put("k", "123")), Failure: ops(put("k", "12345"))},
		8: {Success: ops(put("k", "1"), nested(&pb.TxnRequest{Failure: ops(put("k", "12345"))})), Failure: ops(put("k", "12"))},
	} {
		require.Equal(t, want, PutBytes(m), "%v", m)
	}
}

// Transactions of real clients are decoded by hand: a silent fallback to protobuf would go unnoticed
// otherwise.
func TestOptimisticTransactionsAreReadByHand(t *testing.T) {
	for _, m := range optimistic() {
		raw, err := proto.Marshal(m)
		require.NoError(t, err)
		var got pb.TxnRequest
		require.True(t, ReadTxn(raw, &got), "%v", m)
		require.True(t, proto.Equal(m, &got))
		_, ok := BriefTxn(m)
		require.True(t, ok)
	}
}

func TestTransactionsAreTheMessage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &pb.TxnRequest{Compare: drawnCompares(t), Success: drawnOperations(t, "success"), Failure: drawnOperations(t, "failure")}
		brief, ok := BriefTxn(m)
		raw, err := marshal(m)
		require.NoError(t, err)
		var again pb.TxnRequest
		require.Equal(t, ok, ReadTxn(raw, &again), "%v", m)
		if !ok {
			require.True(t, proto.Equal(&pb.TxnRequest{}, &again), "what isn't read leaves nothing")
			return
		}
		require.True(t, proto.Equal(m, &again), "%v is not %v", &again, m)
		require.Equal(t, string(raw), string(brief.AppendTo(nil)))
		require.Equal(t, len(raw), brief.Size())
	})
}

func drawnNumber(t *rapid.T, what string) int64 {
	return rapid.OneOf(rapid.Just(int64(0)), rapid.Int64()).Draw(t, what)
}

func drawnBytes(t *rapid.T, what string) []byte {
	return rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, what)
}

func drawnCompares(t *rapid.T) (all []*pb.Compare) {
	for range rapid.IntRange(0, 3).Draw(t, "compares") {
		c := &pb.Compare{Key: drawnBytes(t, "key"), Result: pb.Compare_CompareResult(rapid.Int32Range(-1, 4).Draw(t, "result")),
			Target: pb.Compare_CompareTarget(rapid.Int32Range(-1, 5).Draw(t, "target"))}
		n := drawnNumber(t, "number")
		switch rapid.IntRange(0, 19).Draw(t, "of") {
		case 0:
			c.TargetUnion = &pb.Compare_Value{Value: drawnBytes(t, "value")}
		case 1, 2:
			c.TargetUnion = &pb.Compare_Lease{Lease: n}
		case 3, 4, 5:
			c.TargetUnion = &pb.Compare_Version{Version: n}
		case 6, 7, 8:
			c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: n}
		case 9:
			c.TargetUnion, c.RangeEnd = &pb.Compare_ModRevision{ModRevision: n}, []byte("end")
		case 10: // nothing
		default:
			c.TargetUnion = &pb.Compare_ModRevision{ModRevision: n}
		}
		all = append(all, c)
	}
	return all
}

func drawnOperations(t *rapid.T, what string) (all []*pb.RequestOp) {
	for range rapid.IntRange(0, 3).Draw(t, what) {
		op := &pb.RequestOp{}
		switch rapid.IntRange(0, 19).Draw(t, "operation") {
		case 0:
			op.Request = &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{}}
		case 1: // nothing
		case 2, 3, 4, 5:
			op.Request = &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{
				Key: drawnBytes(t, "key"), RangeEnd: drawnBytes(t, "end"), PrevKv: rapid.Bool().Draw(t, "prev")}}
		case 6, 7, 8, 9:
			op.Request = &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{
				Key: drawnBytes(t, "key"), RangeEnd: drawnBytes(t, "end"), Limit: drawnNumber(t, "limit"), Revision: drawnNumber(t, "revision"),
				SortOrder: pb.RangeRequest_SortOrder(rapid.Int32().Draw(t, "order")), SortTarget: pb.RangeRequest_SortTarget(rapid.Int32().Draw(t, "by")),
				Serializable: rapid.Bool().Draw(t, "serializable"), KeysOnly: rapid.Bool().Draw(t, "keys only"), CountOnly: rapid.Bool().Draw(t, "count only"),
				MinModRevision: drawnNumber(t, "1"), MaxModRevision: drawnNumber(t, "2"), MinCreateRevision: drawnNumber(t, "3"), MaxCreateRevision: drawnNumber(t, "4")}}
		default:
			op.Request = &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{
				Key: drawnBytes(t, "key"), Value: drawnBytes(t, "value"), Lease: drawnNumber(t, "lease"),
				PrevKv: rapid.Bool().Draw(t, "prev"), IgnoreValue: rapid.Bool().Draw(t, "ignore value"), IgnoreLease: rapid.Bool().Draw(t, "ignore lease")}}
		}
		all = append(all, op)
	}
	return all
}

func TestTransactionsAnswersAreTheMessage(t *testing.T) {
	header := func(t *rapid.T) *pb.ResponseHeader {
		if !rapid.Bool().Draw(t, "header") {
			return nil
		}
		return &pb.ResponseHeader{ClusterId: rapid.Uint64().Draw(t, "cluster"), Revision: drawnNumber(t, "revision"), RaftTerm: uint64(drawnNumber(t, "term"))}
	}
	rapid.Check(t, func(t *rapid.T) {
		m := &pb.TxnResponse{Header: header(t), Succeeded: rapid.Bool().Draw(t, "succeeded")}
		other := false
		for range rapid.IntRange(0, 3).Draw(t, "responses") {
			op := &pb.ResponseOp{}
			switch rapid.IntRange(0, 9).Draw(t, "response") {
			case 0:
				op.Response, other = &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{Header: header(t)}}, true
			case 1:
				op.Response, other = &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{PrevKv: &mvccpb.KeyValue{Key: []byte("k")}}}, true
			case 2:
				op.Response, other = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{PrevKvs: []*mvccpb.KeyValue{{}}}}, true
			case 3:
				other = true
			case 4, 5:
				op.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{Header: header(t), Deleted: drawnNumber(t, "deleted")}}
			default:
				op.Response = &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{Header: header(t)}}
			}
			m.Responses = append(m.Responses, op)
		}
		raw, err := marshal(m)
		require.NoError(t, err)
		brief, ok := BriefAnswer(m)
		require.Equal(t, !other, ok)
		got := ReadTxnAnswer(raw)
		require.Equal(t, !other, got != nil, "%v", m)
		if other {
			return
		}
		require.True(t, proto.Equal(m, got), "%v is not %v", got, m)
		require.Equal(t, string(raw), string(brief.AppendTo(nil)))
		require.Equal(t, len(raw), brief.Size())
	})
}

func BenchmarkReadTxn(b *testing.B) {
	raw, err := proto.Marshal(optimistic()[1])
	require.NoError(b, err)
	b.Run("by hand", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			ReadTxn(raw, new(pb.TxnRequest))
		}
	})
	b.Run("protobuf", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			_ = proto.Unmarshal(raw, new(pb.TxnRequest))
		}
	})
	m := optimistic()[1]
	b.Run("write by hand", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			t, _ := BriefTxn(m)
			t.AppendTo(make([]byte, 0, t.Size()))
		}
	})
	b.Run("write by protobuf", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			_, _ = proto.Marshal(m)
		}
	})
}
