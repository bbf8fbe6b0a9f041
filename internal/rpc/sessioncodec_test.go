package rpc

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/api/stoa/v1/sessionwire"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/session"
)

// What is taken for a plain put or get says no more than its key, value and lease,
// and generated code reads the same key from it.
func FuzzPlainKey(f *testing.F) {
	for _, m := range []proto.Message{
		&pb.PutRequest{Key: []byte("k"), Value: []byte("v"), Lease: 5}, &pb.PutRequest{Key: []byte("k"), PrevKv: true},
		&pb.RangeRequest{Key: []byte("k")}, &pb.RangeRequest{Key: []byte("k"), Limit: 3},
	} {
		b, err := proto.Marshal(m)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if key, ok := plainKey(b, putKey, putLease); ok {
			var m pb.PutRequest
			require.NoError(t, proto.Unmarshal(b, &m))
			require.Equal(t, string(m.Key), string(key))
			require.True(t, proto.Equal(&m, &pb.PutRequest{Key: m.Key, Value: m.Value, Lease: m.Lease}))
		}
		if key, ok := plainKey(b, rangeKey, rangeKey); ok {
			var m pb.RangeRequest
			require.NoError(t, proto.Unmarshal(b, &m))
			require.Equal(t, string(m.Key), string(key))
			require.True(t, proto.Equal(&m, &pb.RangeRequest{Key: m.Key}))
		}
	})
}

// The answer to a get is what generated code would have written.
func TestAnswersWrittenByHand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.SliceOfN(rapid.Byte(), 0, 200)
		kv := &mvccpb.KeyValue{
			Key: rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, "key"), Value: bytes.Draw(t, "value"), Lease: rapid.Int64().Draw(t, "lease"),
			CreateRevision: rapid.Int64().Draw(t, "created"), ModRevision: rapid.Int64().Draw(t, "modified"), Version: rapid.Int64().Draw(t, "version"),
		}
		items := session.NewItems(3)
		for i := range items {
			items[i].Seq, items[i].Revision, items[i].Kind = uint64(i+1), 77, stoapb.Kind_RANGE
		}
		items[0].Kv = kvwire.Of(kv)
		items[1].Response = &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{kv}, Count: 1}
		items[2].Err = errBody
		var sink sessionSink
		for i := range items {
			sink.Reply(&items[i].Op)
		}
		sink.Event(9, &pb.WatchResponse{WatchId: 9, Header: &pb.ResponseHeader{Revision: 5}})
		var got sessionwire.ServerBatch
		require.NoError(t, got.Decode(*sink.message.Bytes))
		require.Len(t, got.Replies, 4)
		require.Equal(t, got.Replies[1].Body, got.Replies[0].Body)
		require.EqualValues(t, 77, got.Replies[0].Revision)
		require.EqualValues(t, 3, got.Replies[2].Code)
		require.True(t, got.Replies[3].Event)
		require.EqualValues(t, 5, got.Replies[3].Revision)
	})
}
