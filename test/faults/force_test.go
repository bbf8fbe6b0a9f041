//go:build faults

package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/test/process"
)

// Two of three servers are lost under load. The third becomes a cluster of its own, with all
// that it had: if it was the leader, with every write that was acknowledged. Then two new
// servers join it.
func TestForceNewCluster(t *testing.T) {
	bin, err := process.UnderTest()
	require.NoError(t, err)
	for _, parts := range []int{1, 2, 4} {
		if parts > 1 && !bin.Stoa {
			continue
		}
		for _, leads := range []bool{true, false} {
			t.Run(fmt.Sprintf("P=%d/leader=%v", parts, leads), func(t *testing.T) { loseMajority(t, parts, leads) })
		}
	}
}

// writes puts numbered keys of many directories, and keeps those that are acknowledged.
type writes struct {
	mu    sync.Mutex
	acked map[string]int64 // the revisions by key
}

func (w *writes) drive(ctx context.Context, client int, endpoints func() []string) {
	var cli *clientv3.Client
	for i := 0; ctx.Err() == nil; i++ {
		if cli == nil {
			var err error
			if cli, err = clientv3.New(clientv3.Config{Endpoints: endpoints(), Logger: zap.NewNop(), DialTimeout: 2 * time.Second}); err != nil {
				return
			}
		}
		asking, cancel := context.WithTimeout(ctx, 2*time.Second)
		a, b := fmt.Sprintf("/force/%d/%06d", client, i), fmt.Sprintf("/pair/%d/%06d", client, i)
		puts := []clientv3.Op{clientv3.OpPut(a, "of "+a), clientv3.OpPut(b, "of "+b)}[:1+i%3/2]
		r, err := cli.Txn(asking).Then(puts...).Commit()
		cancel()
		if err != nil { // the servers may be others now
			cli.Close()
			cli = nil
			continue
		}
		w.mu.Lock()
		for _, op := range puts {
			w.acked[string(op.KeyBytes())] = r.Header.Revision
		}
		w.mu.Unlock()
	}
	if cli != nil {
		cli.Close()
	}
}

func loseMajority(t *testing.T, parts int, leads bool) {
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: parts})
	w := &writes{acked: map[string]int64{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var work sync.WaitGroup
	for i := range *clients {
		work.Go(func() { w.drive(ctx, i, c.Endpoints) })
	}
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.acked) > 1000
	}, time.Minute, 10*time.Millisecond)
	left := leaderOf(t.Context(), c)
	require.GreaterOrEqual(t, left, 0)
	if !leads {
		left = (left + 1) % 3
	}
	s := c.Servers[left]
	for i, other := range c.Servers {
		if i != left {
			require.NoError(t, other.Kill())
		}
	}
	had := everyKey(t, s, true)
	cancel()
	work.Wait()
	require.NoError(t, s.Kill())
	if !leads { // it may lack the last ones
		for key := range w.acked {
			if had[key] == nil {
				delete(w.acked, key)
			}
		}
	}
	t.Logf("%d acknowledged writes have to be there", len(w.acked))

	forced := s.With("--force-new-cluster")
	c.Servers[left] = forced
	for range 2 { // the flag may stay on
		require.NoError(t, c.Restart(t.Context(), forced))
		w.check(t, forced, had)
		require.Len(t, listOf(t, forced), 1)
		require.NoError(t, forced.Kill())
	}
	c.Servers = []*process.Server{s}
	require.NoError(t, c.Restart(t.Context(), s)) // without it
	r := &roster{t: t, c: c, conns: nil}
	for _, name := range []string{"new1", "new2"} {
		added := r.join(name)
		w.check(t, added, had)
	}
	require.NoError(t, s.Kill()) // the new ones are a majority
	w.check(t, c.Servers[1], had)
}

// check wants what was there and what was acknowledged, at its revisions.
func (w *writes) check(t *testing.T, s *process.Server, had map[string]*mvccpb.KeyValue) {
	t.Helper()
	now := everyKey(t, s, false)
	for key, kv := range had {
		require.NotNil(t, now[key], "%s is lost, which the survivor had", key)
		require.Equal(t, kv.ModRevision, now[key].ModRevision)
	}
	var lost []string
	for key, rev := range w.acked {
		if kv := now[key]; kv == nil || kv.ModRevision != rev || string(kv.Value) != "of "+key {
			lost = append(lost, key)
		}
	}
	slices.Sort(lost)
	require.Empty(t, lost, "acknowledged writes are lost")
	for key := range now { // a transaction has been applied as a whole
		if pair, ok := strings.CutPrefix(key, "/pair/"); ok {
			require.NotNil(t, now["/force/"+pair], "half of a transaction is missing")
		}
	}
}

func everyKey(t *testing.T, s *process.Server, serializable bool) map[string]*mvccpb.KeyValue {
	t.Helper()
	conn, err := dial(s.ClientURL)
	require.NoError(t, err)
	defer conn.Close()
	var all map[string]*mvccpb.KeyValue
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte("/"), RangeEnd: []byte("0"), Serializable: serializable})
		if err != nil {
			return false
		}
		all = map[string]*mvccpb.KeyValue{}
		for _, kv := range r.Kvs {
			all[string(kv.Key)] = kv
		}
		return true
	}, time.Minute, 50*time.Millisecond)
	return all
}

func listOf(t *testing.T, s *process.Server) []*pb.Member {
	t.Helper()
	conn, err := dial(s.ClientURL)
	require.NoError(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	list, err := pb.NewClusterClient(conn).MemberList(ctx, &pb.MemberListRequest{Linearizable: true})
	require.NoError(t, err)
	return list.Members
}
