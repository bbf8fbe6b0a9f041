package rpc

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/api/stoa/v1/sessionwire"
)

// The targets of this file are what anybody can send before it is known who it is.

// FuzzSessionMessage feeds the first message of a session's stream, and the requests in it: all
// that is decoded and checked before the session is opened, and behind it.
func FuzzSessionMessage(f *testing.F) {
	txn, err := proto.Marshal(&pb.TxnRequest{Success: ops(opPut("a"), opTxn(ops(opGet("x")), nil))})
	require.NoError(f, err)
	put, err := proto.Marshal(&pb.PutRequest{Key: []byte("k"), Value: []byte("v"), Lease: 1})
	require.NoError(f, err)
	watch, err := proto.Marshal(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: 4})
	require.NoError(f, err)
	b, err := proto.Marshal(&stoapb.ClientBatch{
		Open:     &stoapb.OpenSession{Session: 7, Next: 3, Client: "c", Watches: []*stoapb.Request{{Seq: 1, Kind: stoapb.Kind_WATCH, Body: watch}}},
		Requests: []*stoapb.Request{{Seq: 3, Kind: stoapb.Kind_TXN, Body: txn}, {Seq: 4, Kind: stoapb.Kind_PUT, Body: put}, {Seq: 5, Kind: stoapb.Kind_RANGE, Body: put}},
	})
	require.NoError(f, err)
	f.Add(b)
	s := &sessionServer{maxOps: 128, maxBytes: 1 << 20}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &sessionReceiver{server: s}
		if r.batch.Decode(b) != nil || r.batch.Open == nil {
			return
		}
		_, _ = s.watches(r.batch.Open)
		r.next = max(r.batch.Open.GetNext(), 1)
		items, err := r.items()
		require.True(t, err != nil || len(items) == len(r.batch.Requests))
	})
}

// FuzzCodec decodes requests as the server's codec does. What it accepts protobuf accepts, too,
// and means the same but for fields that nobody knows, which puts don't keep.
func FuzzCodec(f *testing.F) {
	c := codec{CodecV2: sessionwire.Codec()}
	for _, m := range []proto.Message{&pb.PutRequest{Key: []byte("k"), Value: []byte("v"), PrevKv: true}, &pb.RangeRequest{Key: []byte("k"), Limit: 5}} {
		b, err := proto.Marshal(m)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, kind := range []proto.Message{&pb.PutRequest{}, &pb.RangeRequest{}, &pb.TxnRequest{}, &pb.AuthenticateRequest{}} {
			got, want := proto.Clone(kind), proto.Clone(kind)
			err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, got)
			wrong := proto.Unmarshal(b, want)
			require.Equal(t, wrong == nil, err == nil, "protobuf: %v, by hand: %v", wrong, err)
			if err == nil {
				got.ProtoReflect().SetUnknown(nil)
				want.ProtoReflect().SetUnknown(nil)
				require.True(t, proto.Equal(want, got), "%v, by hand %v", want, got)
			}
		}
	})
}

// FuzzMetadata reads what a request's metadata says of its client.
func FuzzMetadata(f *testing.F) {
	f.Add("Bearer a.b.c", "client", "3e9", "60")
	f.Add("", "", "-1", "99999999999999999999")
	f.Fuzz(func(t *testing.T, token, client, lease, remaining string) {
		ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("authorization", token,
			metadataClient, client, metadataLease, lease, metadataRemaining, remaining))
		_ = Token(ctx)
		require.Empty(t, CommonName(ctx))
		name, id := Caller(ctx)
		require.LessOrEqual(t, len(name), maxClientID)
		require.GreaterOrEqual(t, id, int64(0))
		require.GreaterOrEqual(t, remainingTTL(ctx), int64(0))
	})
}
