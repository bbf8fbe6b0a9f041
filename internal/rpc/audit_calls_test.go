package rpc_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/audit"
	"github.com/stoa-kv/stoa/internal/rpc"
)

// What an extension handles may write: it is recorded, even if it is a read or a watch otherwise.
func TestTheAuditLogHasCallsOfExtensions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	f, err := os.Create(path)
	require.NoError(t, err)
	log := audit.Open(f, audit.Options{})
	n, conn, _ := startServer(t, 2, rpc.Options{Audit: log})
	_, err = n.Put(t.Context(), &pb.PutRequest{Key: []byte("/em/x"), Value: []byte(`return {
  scope = { "/x/" },
  operations = { { op = "read", key = "/x/call" }, { op = "txn", key = "/x/call" }, { op = "block", key = "/x/call" } },
  read = function() put("/x/read", "v") return "" end,
  txn = function() put("/x/txn", "v") return true end,
  block = function() put("/x/block", "v") end,
}`)})
	require.NoError(t, err)
	s := openSession(t, conn, &stoapb.OpenSession{Ttl: 60})
	for _, key := range [][]byte{[]byte("/x/call"), []byte("/x/plain")} {
		get := &pb.RangeRequest{Key: key}
		txn := &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: get}}}}
		open := &pb.WatchCreateRequest{Key: key}
		kv := pb.NewKVClient(conn)
		_, err = kv.Range(t.Context(), get)
		require.NoError(t, err)
		_, err = kv.Txn(t.Context(), txn)
		require.NoError(t, err)
		stream, err := kv.RangeStream(t.Context(), get)
		require.NoError(t, err)
		for err == nil {
			_, err = stream.Recv()
		}
		watch, err := pb.NewWatchClient(conn).Watch(t.Context())
		require.NoError(t, err)
		require.NoError(t, watch.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: open}}))
		_, err = watch.Recv()
		require.NoError(t, err)
		first := s.next
		s.send(s.request(stoapb.Kind_RANGE, 0, get), s.request(stoapb.Kind_TXN, 0, txn), s.request(stoapb.Kind_WATCH, 0, open))
		for seq := first; seq < s.next; seq++ {
			require.Zero(t, s.reply(seq).Code)
		}
	}
	require.True(t, log.Close(time.Minute))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var methods []string
	for line := range strings.Lines(string(text)) {
		var r audit.Record
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		require.Equal(t, "OK", r.Code)
		require.Len(t, r.Keys, 1)
		require.Equal(t, "/x/call", r.Keys[0].Key)
		methods = append(methods, r.Method)
	}
	const session = "/stoa.v1.Sessions/Open/"
	require.Equal(t, []string{
		pb.KV_Range_FullMethodName, pb.KV_Txn_FullMethodName, pb.KV_RangeStream_FullMethodName, pb.Watch_Watch_FullMethodName,
		session + "RANGE", session + "TXN", session + "WATCH",
	}, methods)
}
