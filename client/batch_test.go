package client_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/client"
)

func TestBatch(t *testing.T) {
	f := newFake(t, 1)
	s := f.session()
	ctx := testContext(t)
	b := s.Batch()
	put := b.Put("/k/1", "v")
	got := b.Get("/k/1")
	del := b.Delete("/k/1")
	txn := b.Txn(nil, []clientv3.Op{clientv3.OpPut("/k/2", "w")}, nil)
	do := b.Do(clientv3.OpGet("/k/", clientv3.WithPrefix()))
	bad := b.Put("refuse", "")
	require.Equal(t, 6, b.Len())
	require.Error(t, b.Run(ctx), "one has failed")
	_, err := bad.Wait(ctx)
	require.Error(t, err)
	p, err := put.Wait(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 2, p.Header.Revision)
	g, err := got.Wait(ctx)
	require.NoError(t, err)
	require.Equal(t, "v", string(g.Kvs[0].Value))
	d, err := del.Wait(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, d.Deleted)
	x, err := txn.Wait(ctx)
	require.NoError(t, err)
	require.True(t, x.Succeeded)
	o, err := do.Wait(ctx)
	require.NoError(t, err)
	require.Len(t, o.Get().Kvs, 1)
	require.Error(t, b.Send(ctx), "a batch is sent once")
}

// TestIndependent sorts a batch by partition, and leaves alone what is around it.
func TestIndependent(t *testing.T) {
	f := newFake(t, 1)
	f.atlas = &stoapb.PartitionMap{Partitions: 2, Slots: []byte{0, 1}, Rules: []*stoapb.PlacementRule{{Key: []byte("/even/"), Slot: 0}, {Key: []byte("/odd/"), Slot: 1}}}
	s := f.session()
	ctx := testContext(t)
	b := s.Batch(client.Independent())
	for i := range 6 {
		b.Put(fmt.Sprintf("/%s/%d", []string{"even", "odd"}[i%2], i), "")
	}
	require.NoError(t, b.Run(ctx))
	var keys []string
	for _, w := range f.writes {
		keys = append(keys, w.key)
	}
	require.Equal(t, []string{"/even/0", "/even/2", "/even/4", "/odd/1", "/odd/3", "/odd/5"}, keys)
}

// TestEncoded: a response is, encoded, the one that the session's own calls return.
func TestEncoded(t *testing.T) {
	f := newFake(t, 1)
	s := f.session()
	ctx := testContext(t)
	encode := func(m proto.Message) []byte {
		body, err := proto.Marshal(m)
		require.NoError(t, err)
		return body
	}
	key := []byte("/k/1")
	b := s.Batch()
	put := b.Encoded(stoapb.Kind_PUT, encode(&pb.PutRequest{Key: key, Value: []byte("v")}))
	got := b.Encoded(stoapb.Kind_RANGE, encode(&pb.RangeRequest{Key: key}))
	txn := b.Encoded(stoapb.Kind_TXN, encode(&pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key}}}}}))
	bad := b.Encoded(stoapb.Kind_PUT, encode(&pb.PutRequest{Key: []byte("refuse")}))
	require.Error(t, b.Run(ctx), "one has failed")
	same := func(want proto.Message, future *client.Future[[]byte]) {
		t.Helper()
		body, err := future.Wait(ctx)
		require.NoError(t, err)
		m := want.ProtoReflect().New().Interface()
		require.NoError(t, proto.Unmarshal(body, m))
		require.Truef(t, proto.Equal(want, m), "%v\n%v", want, m)
	}
	read, err := s.Get(ctx, string(key))
	require.NoError(t, err)
	require.NotZero(t, read.Header.ClusterId)
	same(&pb.PutResponse{Header: read.Header}, put)
	same((*pb.RangeResponse)(read), got)
	done, err := s.Do(ctx, clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpGet(string(key))}, nil))
	require.NoError(t, err)
	same((*pb.TxnResponse)(done.Txn()), txn)
	_, err = bad.Wait(ctx)
	_, want := s.Put(ctx, "refuse", "")
	require.Equal(t, want, err)
}
