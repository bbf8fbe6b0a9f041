package compat

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestPutAndGet(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		k := e.key("a", 0)
		require.Empty(t, e.get(k).Kvs)

		first := e.put(k, "one")
		got := e.get(k)
		require.EqualValues(t, 1, got.Count)
		require.False(t, got.More)
		kv := got.Kvs[0]
		require.Equal(t, "one", string(kv.Value))
		require.Equal(t, [3]int64{first, first, 1}, [3]int64{kv.CreateRevision, kv.ModRevision, kv.Version})
		require.Equal(t, first, got.Header.Revision, "a read's content is the state at its header")

		second := e.put(k, "two")
		require.Equal(t, first+1, second, "a client that only makes successful writes sees dense revisions")
		kv = e.get(k).Kvs[0]
		require.Equal(t, [3]int64{first, second, 2}, [3]int64{kv.CreateRevision, kv.ModRevision, kv.Version})

		prev, err := e.cli.Put(e.ctx, k, "three", clientv3.WithPrevKV())
		require.NoError(t, err)
		require.Equal(t, "two", string(prev.PrevKv.Value))

		none, err := e.cli.Put(e.ctx, e.key("a", 1), "x", clientv3.WithPrevKV())
		require.NoError(t, err)
		require.Nil(t, none.PrevKv)

		require.NotZero(t, none.Header.ClusterId)
		require.NotZero(t, none.Header.MemberId)
		require.NotZero(t, none.Header.RaftTerm)
	})
}

func TestPutIgnoreValueAndLease(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		k := e.key("a", 0)
		_, err := e.cli.Put(e.ctx, k, "", clientv3.WithIgnoreValue())
		wantError(t, rpctypes.ErrGRPCKeyNotFound, err)
		_, err = e.cli.Put(e.ctx, k, "v", clientv3.WithIgnoreLease())
		wantError(t, rpctypes.ErrGRPCKeyNotFound, err)

		l, err := e.cli.Grant(e.ctx, 600)
		require.NoError(t, err)
		_, err = e.cli.Put(e.ctx, k, "v1", clientv3.WithLease(l.ID))
		require.NoError(t, err)
		_, err = e.cli.Put(e.ctx, k, "v2", clientv3.WithIgnoreLease())
		require.NoError(t, err)
		kv := e.get(k).Kvs[0]
		require.Equal(t, "v2", string(kv.Value))
		require.Equal(t, int64(l.ID), kv.Lease)

		_, err = e.cli.Put(e.ctx, k, "", clientv3.WithIgnoreValue())
		require.NoError(t, err)
		kv = e.get(k).Kvs[0]
		require.Equal(t, "v2", string(kv.Value))
		require.Zero(t, kv.Lease)
	})
}

func TestOddKeysAndValues(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		for name, k := range map[string]string{
			"zero bytes":   e.root + "\x00\x00/\x00",
			"high bytes":   e.root + "\xff\xfe/\xff",
			"not UTF-8":    e.root + "\xc3\x28",
			"many slashes": e.root + "////",
			"long":         e.root + string(bytes.Repeat([]byte("k"), 8192)),
		} {
			rev := e.put(k, "\x00\xff")
			got := e.get(k)
			require.Len(t, got.Kvs, 1, name)
			require.Equal(t, k, string(got.Kvs[0].Key), name)
			require.Equal(t, "\x00\xff", string(got.Kvs[0].Value), name)
			require.Equal(t, rev, got.Kvs[0].ModRevision, name)
		}
		e.put(e.key("a", 0), "")
		require.Empty(t, e.get(e.key("a", 0)).Kvs[0].Value)
		require.Len(t, e.get(e.root, clientv3.WithPrefix()).Kvs, 6)
	})
}

func TestGiantValues(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		k := e.key("a", 0)
		large := string(bytes.Repeat([]byte("x"), 1<<20))
		e.put(k, large)
		require.Equal(t, large, string(e.get(k).Kvs[0].Value))

		_, err := e.kv.Put(e.ctx, &pb.PutRequest{Key: []byte(k), Value: bytes.Repeat([]byte("x"), 1536<<10)})
		wantError(t, rpctypes.ErrGRPCRequestTooLarge, err)
		_, err = e.kv.Put(e.ctx, &pb.PutRequest{Key: []byte(k), Value: bytes.Repeat([]byte("x"), 3<<20)})
		require.ErrorContains(t, err, "ResourceExhausted", "gRPC's own limit lies 512 KiB above etcd's")
		require.Equal(t, large, string(e.get(k).Kvs[0].Value))
	})
}

func TestDelete(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		keys, _ := e.fill(3)
		del, err := e.cli.Delete(e.ctx, keys[0], clientv3.WithPrevKV())
		require.NoError(t, err)
		require.EqualValues(t, 1, del.Deleted)
		require.Equal(t, "v"+keys[0], string(del.PrevKvs[0].Value))

		before := del.Header.Revision
		del, err = e.cli.Delete(e.ctx, keys[0])
		require.NoError(t, err)
		require.Zero(t, del.Deleted)
		if e.parts == 1 {
			require.Equal(t, before, del.Header.Revision, "a deletion of nothing takes no revision")
		}

		rev := e.put(keys[0], "again")
		kv := e.get(keys[0]).Kvs[0]
		require.Equal(t, [3]int64{rev, rev, 1}, [3]int64{kv.CreateRevision, kv.ModRevision, kv.Version}, "a deleted key begins anew")

		// A range over all directories: one revision for all of them.
		start, end := e.all()
		del, err = e.cli.Delete(e.ctx, start, end, clientv3.WithPrevKV())
		require.NoError(t, err)
		require.EqualValues(t, len(keys), del.Deleted)
		for i := 1; i < len(del.PrevKvs); i++ {
			require.Negative(t, bytes.Compare(del.PrevKvs[i-1].Key, del.PrevKvs[i].Key), "in key order")
		}
		require.Zero(t, e.get(start, end).Count)
		old := e.get(start, end, clientv3.WithRev(del.Header.Revision-1))
		require.EqualValues(t, len(keys), old.Count, "all of them stood until that revision")
	})
}

func TestBadKVRequests(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		_, err := e.kv.Range(e.ctx, &pb.RangeRequest{})
		wantError(t, rpctypes.ErrGRPCEmptyKey, err)
		_, err = e.kv.Put(e.ctx, &pb.PutRequest{Value: []byte("v")})
		wantError(t, rpctypes.ErrGRPCEmptyKey, err)
		_, err = e.kv.DeleteRange(e.ctx, &pb.DeleteRangeRequest{})
		wantError(t, rpctypes.ErrGRPCEmptyKey, err)
		_, err = e.kv.Put(e.ctx, &pb.PutRequest{Key: []byte("k"), Value: []byte("v"), IgnoreValue: true})
		wantError(t, rpctypes.ErrGRPCValueProvided, err)
		_, err = e.kv.Put(e.ctx, &pb.PutRequest{Key: []byte("k"), Lease: 7, IgnoreLease: true})
		wantError(t, rpctypes.ErrGRPCLeaseProvided, err)
		_, err = e.kv.Put(e.ctx, &pb.PutRequest{Key: []byte(e.key("a", 0)), Lease: 0x7eed})
		wantError(t, rpctypes.ErrGRPCLeaseNotFound, err)
		_, err = e.kv.Range(e.ctx, &pb.RangeRequest{Key: []byte("k"), SortOrder: 9})
		wantError(t, rpctypes.ErrGRPCInvalidSortOption, err)
		_, err = e.kv.Range(e.ctx, &pb.RangeRequest{Key: []byte("k"), SortTarget: -1})
		wantError(t, rpctypes.ErrGRPCInvalidSortOption, err)
		_, err = e.kv.Range(e.ctx, &pb.RangeRequest{Key: []byte("k"), Revision: 1 << 40})
		wantError(t, rpctypes.ErrGRPCFutureRev, err)
		_, err = e.kv.Compact(e.ctx, &pb.CompactionRequest{Revision: 1 << 40})
		wantError(t, rpctypes.ErrGRPCFutureRev, err)
	})
}
