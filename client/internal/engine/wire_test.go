package engine

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"

	"github.com/stoa-kv/stoa/internal/placement"
)

// TestEncoding compares what is encoded by hand with what the generated code reads.
func TestEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.StringMatching(`[a-z/]{0,20}`).Draw(t, "key")
		value := strings.Repeat("v", rapid.IntRange(0, 300).Draw(t, "value"))
		lease := rapid.Int64().Draw(t, "lease")
		seq := rapid.Uint64Range(1, 1<<40).Draw(t, "seq")
		revision := rapid.Int64Range(0, 1<<40).Draw(t, "revision")
		level := Level(rapid.IntRange(0, 2).Draw(t, "level"))
		kind := rapid.SampledFrom([]stoapb.Kind{stoapb.Kind_PUT, stoapb.Kind_RANGE, stoapb.Kind_DELETE_RANGE, stoapb.Kind_SYNC}).Draw(t, "kind")
		r := request{kind: kind, level: level, key: key, value: value, lease: lease, plain: true}
		var want proto.Message
		switch kind {
		case stoapb.Kind_PUT:
			want = &pb.PutRequest{Key: bytesOf(key), Value: bytesOf(value), Lease: lease}
		case stoapb.Kind_RANGE:
			want = &pb.RangeRequest{Key: bytesOf(key), Serializable: level == Fast}
		case stoapb.Kind_DELETE_RANGE:
			want = &pb.DeleteRangeRequest{Key: bytesOf(key)}
		default:
			r = request{kind: kind, level: level}
		}
		encoded := appendRequest(appendAnswered(nil, seq-1), &r, seq, revision)
		var batch stoapb.ClientBatch
		require.NoError(t, proto.Unmarshal(encoded, &batch))
		require.Equal(t, seq-1, batch.Answered)
		require.Len(t, batch.Requests, 1)
		q := batch.Requests[0]
		require.Equal(t, seq, q.Seq)
		require.Equal(t, kind, q.Kind)
		require.EqualValues(t, level, q.Level)
		require.Equal(t, revision, q.Revision)
		require.Len(t, q.Body, r.bodySize())
		require.LessOrEqual(t, len(encoded), len(q.Body)+requestOverhead)
		if want != nil {
			got := want.ProtoReflect().New().Interface()
			require.NoError(t, proto.Unmarshal(q.Body, got))
			require.True(t, proto.Equal(want, got), "%v\n%v", want, got)
		}
	})
}

func bytesOf(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// TestDecoding compares what is read by hand with what the generated code wrote.
func TestDecoding(t *testing.T) {
	kv := rapid.Custom(func(t *rapid.T) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{
			Key: rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "key"), Value: rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "value"),
			CreateRevision: rapid.Int64().Draw(t, "create"), ModRevision: rapid.Int64().Draw(t, "mod"),
			Version: rapid.Int64().Draw(t, "version"), Lease: rapid.Int64().Draw(t, "lease"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		get := &pb.RangeResponse{
			Kvs:  rapid.SliceOfN(kv, 0, 3).Draw(t, "kvs"),
			More: rapid.Bool().Draw(t, "more"), Count: rapid.Int64().Draw(t, "count"),
		}
		put := &pb.PutResponse{}
		if len(get.Kvs) > 0 {
			put.PrevKv = get.Kvs[0]
		}
		del := &pb.DeleteRangeResponse{Deleted: get.Count, PrevKvs: get.Kvs}
		sent := &stoapb.ServerBatch{Replies: []*stoapb.Reply{
			{Seq: 1, Body: must(proto.Marshal(get)), Revision: 5}, {Seq: 2, Body: must(proto.Marshal(put)), Revision: 6},
			{Seq: 3, Body: must(proto.Marshal(del)), Revision: 7}, {Seq: 4, Code: 5, Message: "no", Event: true},
		}}
		data := must(proto.Marshal(sent))
		var batch serverBatch
		require.NoError(t, batch.read(data, &origin{cluster: 1, member: 2, term: 3}))
		require.Len(t, batch.arrivals, 4)
		var gf getFuture
		var pf putFuture
		var df deleteFuture
		gf.answer(&batch.arrivals[0])
		pf.answer(&batch.arrivals[1])
		df.answer(&batch.arrivals[2])
		last := batch.arrivals[3]
		require.True(t, last.event)
		require.ErrorContains(t, last.err(), "no")
		clear(data) // nothing may point into reused memory
		get.Header = &pb.ResponseHeader{ClusterId: 1, MemberId: 2, RaftTerm: 3, Revision: 5}
		put.Header = &pb.ResponseHeader{ClusterId: 1, MemberId: 2, RaftTerm: 3, Revision: 6}
		del.Header = &pb.ResponseHeader{ClusterId: 1, MemberId: 2, RaftTerm: 3, Revision: 7}
		require.NoError(t, gf.err)
		require.True(t, proto.Equal(get, (*pb.RangeResponse)(gf.value)), "%v\n%v", get, (*pb.RangeResponse)(gf.value))
		require.True(t, proto.Equal(put, (*pb.PutResponse)(pf.value)))
		require.True(t, proto.Equal(del, (*pb.DeleteRangeResponse)(df.value)))
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// FuzzDecoding decodes arbitrary messages of a server.
func FuzzDecoding(f *testing.F) {
	f.Add(must(proto.Marshal(&stoapb.ServerBatch{Replies: []*stoapb.Reply{{Seq: 1, Body: []byte("x"), Revision: 2}}})))
	f.Fuzz(func(t *testing.T, data []byte) {
		var batch serverBatch
		if batch.read(data, new(origin)) != nil {
			return
		}
		for i := range batch.arrivals {
			new(getFuture).answer(&batch.arrivals[i])
			new(putFuture).answer(&batch.arrivals[i])
			new(deleteFuture).answer(&batch.arrivals[i])
			new(txnFuture).answer(&batch.arrivals[i])
		}
	})
}

// TestPlacement compares with the server's placement.
func TestPlacement(t *testing.T) {
	m := placement.New(4).WithRules([]placement.Rule{{Key: "/a/b/", Slot: 5}, {Key: "/a/b/c/", Slot: 6}, {Key: "/x", Slot: 7}})
	var a atlas
	_, known := a.partition([]byte("k"))
	require.False(t, known)
	told := &stoapb.PartitionMap{Partitions: 4, Slots: make([]byte, placement.Slots)}
	for i := range 20 * placement.Slots { // a key in every slot, nearly certainly
		key := []byte(strconv.Itoa(i))
		told.Slots[placement.HashSlot(key)] = byte(m.Partition(key))
	}
	for _, r := range m.Rules() {
		told.Rules = append(told.Rules, &stoapb.PlacementRule{Key: []byte(r.Key), Slot: uint32(r.Slot)})
	}
	a.learn(told)
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.StringMatching(`/?([abcx]/?){0,7}`).Draw(t, "key")
		p, known := a.partition([]byte(key))
		require.True(t, known)
		require.EqualValues(t, m.Partition([]byte(key)), p, key)
	})
}
