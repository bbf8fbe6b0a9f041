package kvwire

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// Messages decoded by hand equal those decoded by protobuf.
func FuzzReadRequests(f *testing.F) {
	for _, m := range []proto.Message{
		&pb.RangeRequest{
			Key: []byte("k"), RangeEnd: []byte("l"), Limit: 1 << 40, Revision: -5, SortOrder: pb.RangeRequest_DESCEND, SortTarget: pb.RangeRequest_VALUE,
			Serializable: true, KeysOnly: true, CountOnly: true, MinModRevision: 1, MaxModRevision: 2, MinCreateRevision: 3, MaxCreateRevision: 4,
		},
	} {
		raw, err := proto.Marshal(m)
		require.NoError(f, err)
		f.Add(raw)
		f.Add(append(raw, raw...))
		f.Add(append(raw, 14<<3, 1))
		f.Add(raw[:len(raw)-1])
	}
	f.Add([]byte{1<<3 | bytesType, 1, 'k'})
	f.Add([]byte{1<<3 | bytesType, 0})
	f.Add([]byte{5 << 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, raw []byte) {
		agree(t, raw, ReadRange, new(pb.RangeRequest), new(pb.RangeRequest))
		if key, ok := ReadGet(raw); ok {
			var want pb.RangeRequest
			require.NoError(t, proto.Unmarshal(raw, &want))
			require.True(t, proto.Equal(&want, &pb.RangeRequest{Key: key}), "%v is more than a get of %q", &want, key)
		}
	})
}

func agree[M proto.Message](t *testing.T, raw []byte, read func([]byte, M) bool, mine, theirs M) {
	if !read(raw, mine) {
		return
	}
	require.NoError(t, proto.Unmarshal(raw, theirs))
	require.True(t, proto.Equal(theirs, mine), "%v is not %v", mine, theirs)
}

// Requests of real clients are decoded by hand: a silent fallback to protobuf
// would go unnoticed otherwise.
func TestReadRequestsOfClients(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64())
		bytes := rapid.SliceOfN(rapid.Byte(), 0, 200)
		get := &pb.RangeRequest{
			Key: bytes.Draw(t, "from"), RangeEnd: bytes.Draw(t, "end"), Limit: number.Draw(t, "limit"), Revision: number.Draw(t, "revision"),
			SortOrder: pb.RangeRequest_SortOrder(rapid.Int32().Draw(t, "order")), Serializable: rapid.Bool().Draw(t, "serializable"),
			MaxCreateRevision: number.Draw(t, "last"),
		}
		raw, err := proto.Marshal(get)
		require.NoError(t, err)
		var gotGet pb.RangeRequest
		require.True(t, ReadRange(raw, &gotGet))
		require.True(t, proto.Equal(get, &gotGet))
	})
}

func TestRangeResponseIsTheMessage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64())
		var header *pb.ResponseHeader
		if rapid.Bool().Draw(t, "header") {
			header = &pb.ResponseHeader{
				ClusterId: rapid.Uint64().Draw(t, "cluster"), MemberId: rapid.Uint64().Draw(t, "member"),
				Revision: number.Draw(t, "revision"), RaftTerm: uint64(number.Draw(t, "term")),
			}
		}
		get := &pb.RangeResponse{Header: header, More: rapid.Bool().Draw(t, "more"), Count: number.Draw(t, "count")}
		for range rapid.IntRange(0, 3).Draw(t, "keys") {
			get.Kvs = append(get.Kvs, drawn(t))
		}
		theirs, err := proto.MarshalOptions{Deterministic: true}.Marshal(get)
		require.NoError(t, err)
		mine := OfRange(get)
		require.Equal(t, theirs, mine.AppendTo([]byte{}))
		require.Equal(t, len(theirs), mine.Size())
		require.True(t, proto.Equal(get, mine.Message()))
	})
}

func BenchmarkPutRequest(b *testing.B) {
	raw, _ := proto.Marshal(&pb.PutRequest{Key: make([]byte, 20), Value: make([]byte, 256)})
	b.Run("protobuf", func(b *testing.B) {
		for b.Loop() {
			_ = proto.Unmarshal(raw, new(pb.PutRequest))
		}
	})
	b.Run("by hand", func(b *testing.B) {
		for b.Loop() {
			if _, err := ReadPut(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("by hand, a copy as a message", func(b *testing.B) {
		for b.Loop() {
			p, _ := ReadPut(append([]byte(nil), raw...))
			p.Into(new(pb.PutRequest))
		}
	})
}

func BenchmarkRangeResponse(b *testing.B) {
	for _, n := range []int{1, 1000} {
		r := &RangeResponse{Header: &pb.ResponseHeader{ClusterId: 1 << 60, MemberId: 1 << 60, Revision: 1 << 20, RaftTerm: 5}, Count: int64(n)}
		for range n {
			r.Kvs = append(r.Kvs, Make(make([]byte, 20), make([]byte, 256), Fields{CreateRevision: 1 << 20, ModRevision: 1 << 20, Version: 1}))
		}
		buffer := make([]byte, 0, r.Size())
		b.Run(fmt.Sprintf("keys=%d/protobuf", n), func(b *testing.B) {
			for b.Loop() {
				_, _ = proto.MarshalOptions{}.MarshalAppend(buffer, r.Message())
			}
		})
		b.Run(fmt.Sprintf("keys=%d/as it is", n), func(b *testing.B) {
			for b.Loop() {
				r.AppendTo(buffer[:r.Size()][:0])
			}
		})
	}
}
