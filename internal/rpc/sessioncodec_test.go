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

// The answer to a put without flags is its revision, unless an extension gave it when the put came the first time.
func TestAnswersToPuts(t *testing.T) {
	answer := &pb.PutResponse{Header: &pb.ResponseHeader{Revision: 3}, PrevKv: &mvccpb.KeyValue{Key: []byte("n"), Value: []byte("1")}}
	items := session.NewItems(2)
	items[0].Response = &pb.PutResponse{Header: answer.Header}
	items[1].Response = answer
	var sink sessionSink
	for i := range items {
		items[i].Seq, items[i].Revision, items[i].Kind, items[i].Key = uint64(i+1), 3, stoapb.Kind_PUT, []byte("n")
		sink.Reply(&items[i].Op)
	}
	var got sessionwire.ServerBatch
	require.NoError(t, got.Decode(*sink.message.Bytes))
	require.Empty(t, got.Replies[0].Body)
	var told pb.PutResponse
	require.NoError(t, proto.Unmarshal(got.Replies[1].Body, &told))
	require.Truef(t, proto.Equal(answer, &told), "%v", &told)
}
