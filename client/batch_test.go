package client_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

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
