package compat

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestCompact(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		keys, revs := e.fill(1)
		for i, k := range keys {
			revs = append(revs, e.put(k, fmt.Sprint(i)))
		}
		at := revs[10]
		_, err := e.cli.Delete(e.ctx, keys[7])
		require.NoError(t, err)

		_, err = e.cli.Compact(e.ctx, at, clientv3.WithCompactPhysical())
		require.NoError(t, err)

		start, end := e.all()
		_, err = e.cli.Get(e.ctx, start, end, clientv3.WithRev(at-1))
		wantError(t, rpctypes.ErrGRPCCompacted, err)
		_, err = e.cli.Get(e.ctx, keys[0], clientv3.WithRev(revs[0]))
		wantError(t, rpctypes.ErrGRPCCompacted, err)
		_, err = e.cli.Compact(e.ctx, at)
		wantError(t, rpctypes.ErrGRPCCompacted, err)
		_, err = e.cli.Compact(e.ctx, at-1)
		wantError(t, rpctypes.ErrGRPCCompacted, err)

		// The compacted revision itself can still be read.
		old := e.get(start, end, clientv3.WithRev(at))
		require.Len(t, old.Kvs, len(keys))
		for i, kv := range old.Kvs {
			want := "v" + keys[i]
			if i <= 2 {
				want = fmt.Sprint(i)
			}
			require.Equal(t, want, string(kv.Value))
		}
		require.Len(t, e.get(start, end).Kvs, len(keys)-1)

		// A txn that reads below fails as a whole.
		_, err = e.cli.Txn(e.ctx).Then(clientv3.OpGet(keys[0], clientv3.WithRev(revs[0])), clientv3.OpPut(e.key("a", 9), "x")).Commit()
		wantError(t, rpctypes.ErrGRPCCompacted, err)
		require.Empty(t, e.get(e.key("a", 9)).Kvs)
	})
}

func TestCompactReachesEveryServer(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		_, revs := e.fill(1)
		_, err := e.cli.Compact(e.ctx, revs[5])
		require.NoError(t, err)
		for _, s := range e.Servers {
			cli := e.client(s.ClientURL)
			_, err := cli.Get(e.ctx, e.key("a", 0)) // caught up
			require.NoError(t, err)
			_, err = cli.Get(e.ctx, e.key("a", 0), clientv3.WithRev(revs[4]))
			wantError(t, rpctypes.ErrGRPCCompacted, err)
			_, err = cli.Get(e.ctx, e.key("a", 0), clientv3.WithRev(revs[5]))
			require.NoError(t, err)
		}
	})
}

func TestWatchOfCompactedRevisions(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		keys, revs := e.fill(1)
		_, err := e.cli.Compact(e.ctx, revs[6])
		require.NoError(t, err)
		for _, s := range e.Servers { // all servers know the compaction, also the watch's
			_, err := e.client(s.ClientURL).Get(e.ctx, keys[0])
			require.NoError(t, err)
		}

		w := e.cli.Watch(e.ctx, e.root, clientv3.WithPrefix(), clientv3.WithRev(revs[3]))
		r := next(t, w)
		require.True(t, r.Canceled)
		require.Equal(t, revs[6], r.CompactRevision)
		require.Equal(t, rpctypes.ErrCompacted, r.Err())

		// Through a raw stream: created first, then cancelled; the stream stays
		// open.
		s := e.watchStream(0)
		created := s.create(&pb.WatchCreateRequest{Key: []byte(keys[0]), StartRevision: revs[3]})
		require.False(t, created.Canceled)
		cancelled := s.recv()
		require.True(t, cancelled.Canceled)
		require.Equal(t, created.WatchId, cancelled.WatchId)
		require.Equal(t, revs[6], cancelled.CompactRevision)
		s.create(&pb.WatchCreateRequest{Key: []byte(keys[7]), StartRevision: revs[7]})
		require.Equal(t, revs[7], s.recv().Events[0].Kv.ModRevision)
	})
}

func TestAutoCompaction(t *testing.T) {
	own(t, 1, []string{"--auto-compaction-mode=periodic", "--auto-compaction-retention=1s"}, func(t *testing.T, e *env) {
		_, revs := e.fill(2)
		deadline := time.Now().Add(20 * time.Second)
		for i := 0; ; i++ {
			e.put(e.key("a", i%5), "more")
			_, err := e.cli.Get(e.ctx, e.key("a", 0), clientv3.WithRev(revs[1]))
			if err != nil {
				wantError(t, rpctypes.ErrGRPCCompacted, err)
				return
			}
			require.True(t, time.Now().Before(deadline), "not compacted by itself")
			time.Sleep(200 * time.Millisecond)
		}
	})
}
