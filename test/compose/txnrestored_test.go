package compose

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/internal/snapshot"
)

// A cluster is restored that was the home of a transaction whose last writes are missing, and a part of another one. The operator does what
// docs/composition.md says: then all keys can be written again.
func TestTransactionsOfARestoredCluster(t *testing.T) {
	for _, bump := range []int64{0, 1000} {
		all := startEach(t, "stoa", "stoa")
		ctx := soon(t)
		before, err := compose.New(all.interrupted("/c1/a", "/c0/b"))
		require.NoError(t, err)
		defer before.Close()
		for _, key := range []string{"/c0/a", "/c1/a", "/c0/b", "/c1/b"} {
			_, err := before.Put(ctx, key, "before")
			require.NoError(t, err)
		}
		backup := filepath.Join(t.TempDir(), "backup")
		all[0].save(t, ctx, backup)
		for _, keys := range [][]string{{"/c0/a", "/c1/a"}, {"/c1/b", "/c0/b"}} { // the first is in the home
			_, err = before.Txn(ctx).Then(clientv3.OpPut(keys[0], "after"), clientv3.OpPut(keys[1], "after")).Commit()
			require.NoError(t, err)
		}
		former := clusterID(t, ctx, dial(t, all[0].voters...))

		require.NoError(t, before.Close())
		all[0].restore(t, backup, bump)
		restored, other := dial(t, all[0].voters...), dial(t, all[1].voters...)
		require.NotEqual(t, former, clusterID(t, ctx, restored))
		_, err = restored.Delete(ctx, "/stoa/txn/", clientv3.WithPrefix())
		require.NoError(t, err)
		c, err := compose.New(all.bank())
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Put(ctx, "/c1/a", "new")
		require.ErrorContains(t, err, `cluster "c1": /stoa/txn/lock//c1/a is of transaction`)

		deleteNaming(t, ctx, other, "/stoa/txn/lock/", former)
		a, err := c.Get(ctx, "/c1/a")
		require.NoError(t, err)
		require.Equal(t, "before", string(a.Kvs[0].Value))
		for _, key := range []string{"/c0/a", "/c1/a", "/c0/b", "/c1/b"} {
			_, err := c.Put(ctx, key, "new")
			require.NoError(t, err, key)
		}
		_, err = c.Txn(ctx).Then(clientv3.OpPut("/c0/a", "last"), clientv3.OpPut("/c1/a", "last")).Commit()
		require.NoError(t, err)
		deleteNaming(t, ctx, other, "/stoa/txn/record/", former)
		require.NoError(t, c.Close())
		require.Empty(t, all.left(t))
	}
}

// interrupted is a bank whose transactions come to nothing in a cluster behind their commit, where they put one of the keys.
func (all clusters) interrupted(keys ...string) compose.Config {
	cfg := all.bank()
	for name, of := range cfg.Clusters {
		of.DialOptions = append(of.DialOptions, grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, answer any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			for _, key := range keys {
				if t, ok := request.(*pb.TxnRequest); ok && writes(request, key) && deletesALock(t) {
					return status.Error(codes.Unavailable, "interrupted")
				}
			}
			return invoke(ctx, method, request, answer, cc, opts...)
		}))
		cfg.Clusters[name] = of
	}
	return cfg
}

func deletesALock(t *pb.TxnRequest) bool {
	return slices.ContainsFunc(t.Success, func(op *pb.RequestOp) bool {
		return bytes.HasPrefix(op.GetRequestDeleteRange().GetKey(), []byte("/stoa/txn/lock/"))
	})
}

func (c *cluster) save(t *testing.T, ctx context.Context, file string) {
	from, err := dial(t, c.voters...).Snapshot(ctx)
	require.NoError(t, err)
	defer from.Close()
	to, err := os.Create(file)
	require.NoError(t, err)
	_, err = io.Copy(to, from)
	require.NoError(t, err)
	require.NoError(t, to.Close())
}

// restore has the only server begin with a backup.
func (c *cluster) restore(t *testing.T, file string, bump int64) {
	s := c.Servers[0]
	_, _, err := s.Stop()
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(s.DataDir))
	_, err = snapshot.Restore(t.Context(), file, snapshot.Config{
		Name: s.Name, PeerURLs: []string{s.PeerURL}, InitialCluster: s.Name + "=" + s.PeerURL, Token: filepath.Base(c.Spec.Dir),
		DataDir: s.DataDir, Partitions: 2, BumpRevision: bump,
	})
	require.NoError(t, err)
	require.NoError(t, s.Start())
	require.NoError(t, s.WaitReady(soon(t)))
}

// deleteNaming deletes those of the keys whose values name a cluster.
func deleteNaming(t *testing.T, ctx context.Context, by *clientv3.Client, prefix, id string) {
	a, err := by.Get(ctx, prefix, clientv3.WithPrefix())
	require.NoError(t, err)
	require.NotEmpty(t, a.Kvs)
	for _, kv := range a.Kvs {
		if bytes.Contains(kv.Value, []byte(id)) {
			_, err := by.Delete(ctx, string(kv.Key))
			require.NoError(t, err)
		}
	}
}
