package sidecar

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/test/process"
)

// two are a cluster of stoa, for keys under /s/ and its extensions, and one of etcd, for those under /e/, behind a sidecar.
type two struct {
	stoa, etcd *process.Cluster
	sidecar    *process.Server
}

func composedOf(t *testing.T, flags ...string) two {
	t.Helper()
	bin, err := process.Choose("etcd")
	require.NoError(t, err)
	w := two{stoa: process.StartT(t, process.Spec{Partitions: 2}), etcd: process.StartT(t, process.Spec{Binary: bin})}
	file := filepath.Join(t.TempDir(), "compose.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
clusters:
  ours: { endpoints: [%q] }
  theirs: { endpoints: [%q] }
routes:
- { prefix: /s/, cluster: ours }
- { prefix: /em/, cluster: ours }
- { prefix: /e/, cluster: theirs }
`, w.stoa.Servers[0].ClientURL, w.etcd.Servers[0].ClientURL), 0o600))
	w.sidecar, err = w.stoa.SidecarOf(file, "composed", flags...)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = w.sidecar.Kill()
		if t.Failed() {
			t.Logf("the sidecar: %s", w.sidecar.LogTail(2000))
		}
	})
	again(t, w.sidecar)
	return w
}

// TestComposed: to a client of etcd's two clusters are one, as far as keys go.
func TestComposed(t *testing.T) {
	t.Parallel()
	w := composedOf(t)
	cli := dial(t, w.sidecar.ClientURL, clientv3.Config{})
	ctx := soon(t)
	for _, key := range []string{"/s/a", "/e/a", "/s/b"} {
		_, err := cli.Put(ctx, key, "of "+key)
		require.NoError(t, err)
	}
	for key, c := range map[string]*process.Cluster{"/s/a": w.stoa, "/e/a": w.etcd} {
		got, err := dial(t, c.Servers[0].ClientURL, clientv3.Config{}).Get(ctx, key)
		require.NoError(t, err)
		require.Equal(t, "of "+key, string(got.Kvs[0].Value))
	}
	all, err := cli.Get(ctx, "/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Equal(t, []string{"/e/a", "/s/a", "/s/b"}, keysOf(all))
	near, err := cli.Get(ctx, "/s/", clientv3.WithPrefix(), clientv3.WithSerializable(), clientv3.WithKeysOnly(), clientv3.WithLimit(1))
	require.NoError(t, err)
	require.Equal(t, []string{"/s/a"}, keysOf(near))
	require.EqualValues(t, 2, near.Count)
	require.True(t, near.More)

	swap := func(key, from, to string) *clientv3.TxnResponse {
		r, err := cli.Txn(ctx).If(clientv3.Compare(clientv3.Value(key), "=", from)).
			Then(clientv3.OpPut(key, to)).Else(clientv3.OpGet(key)).Commit()
		require.NoError(t, err)
		return r
	}
	for _, key := range []string{"/s/a", "/e/a"} {
		require.True(t, swap(key, "of "+key, "new").Succeeded)
		r := swap(key, "of "+key, "newer")
		require.False(t, r.Succeeded)
		require.Equal(t, "new", string(r.Responses[0].GetResponseRange().Kvs[0].Value))
	}
	gone, err := cli.Delete(ctx, "/e/a", clientv3.WithPrevKV())
	require.NoError(t, err)
	require.Equal(t, "new", string(gone.PrevKvs[0].Value))

	// Recipes of etcd's client run on one cluster's keys.
	session, err := concurrency.NewSession(cli, concurrency.WithTTL(10))
	require.NoError(t, err)
	m := concurrency.NewMutex(session, "/e/lock")
	require.NoError(t, m.Lock(ctx))
	require.NoError(t, m.Unlock(ctx))
	require.NoError(t, session.Close())
}

func keysOf(r *clientv3.GetResponse) (keys []string) {
	for _, kv := range r.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

// TestComposedLeases: a lease holds keys in both clusters.
func TestComposedLeases(t *testing.T) {
	t.Parallel()
	w := composedOf(t)
	cli := dial(t, w.sidecar.ClientURL, clientv3.Config{})
	ctx := soon(t)
	lease, err := cli.Grant(ctx, 5)
	require.NoError(t, err)
	for _, key := range []string{"/s/l", "/e/l"} {
		_, err := cli.Put(ctx, key, "", clientv3.WithLease(lease.ID))
		require.NoError(t, err)
	}
	keep, stop := context.WithCancel(ctx)
	answers, err := cli.KeepAlive(keep, lease.ID)
	require.NoError(t, err)
	go drain(answers)
	time.Sleep(8 * time.Second)
	there, err := cli.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())
	require.NoError(t, err)
	require.Positive(t, there.TTL)
	require.Len(t, there.Keys, 2)
	stop()
	require.Eventually(t, func() bool {
		left, err := cli.Get(ctx, "/", clientv3.WithPrefix())
		return err == nil && len(left.Kvs) == 0
	}, limit, 100*time.Millisecond)
	_, err = cli.KeepAliveOnce(ctx, lease.ID)
	require.ErrorIs(t, err, rpctypes.ErrLeaseNotFound)
}

// TestComposedRefusals: what a composition can't do is refused by name, with etcd's error where it has
// one.
func TestComposedRefusals(t *testing.T) {
	t.Parallel()
	w := composedOf(t)
	cli := dial(t, w.sidecar.ClientURL, clientv3.Config{})
	ctx := soon(t)
	_, err := cli.Put(ctx, "/elsewhere", "")
	require.Equal(t, codes.InvalidArgument, status.Code(err), err)
	_, err = cli.Txn(ctx).Then(clientv3.OpPut("/s/t", ""), clientv3.OpPut("/e/t", "")).Commit()
	require.Equal(t, codes.Unimplemented, status.Code(err), err)
	_, err = cli.MemberList(ctx)
	require.Equal(t, codes.Unimplemented, status.Code(err), err)
	require.ErrorContains(t, err, "/etcdserverpb.Cluster/MemberList is not served")
	_, err = cli.Compact(ctx, 1)
	require.Equal(t, codes.Unimplemented, status.Code(err), err)
	_, err = cli.Put(ctx, "", "")
	require.ErrorIs(t, err, rpctypes.ErrEmptyKey)
	left, err := cli.Get(ctx, "/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, left.Kvs, "what was refused has an effect")
}

// TestComposedWatches: one stream has watches of both clusters, with IDs as a member gives them, from
// revisions in the past, and ends of watches.
func TestComposedWatches(t *testing.T) {
	t.Parallel()
	w := composedOf(t)
	cli := dial(t, w.sidecar.ClientURL, clientv3.Config{})
	ctx := soon(t)
	first, err := cli.Put(ctx, "/e/0", "")
	require.NoError(t, err)
	st, err := pb.NewWatchClient(cli.ActiveConnection()).Watch(ctx)
	require.NoError(t, err)
	create := func(r *pb.WatchCreateRequest) *pb.WatchResponse {
		require.NoError(t, st.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}))
		a, err := st.Recv()
		require.NoError(t, err)
		require.True(t, a.Created)
		return a
	}
	require.EqualValues(t, 1, create(&pb.WatchCreateRequest{Key: []byte("/s/1"), WatchId: 1}).WatchId)
	require.EqualValues(t, 0, create(&pb.WatchCreateRequest{Key: []byte("/s/"), RangeEnd: []byte("/s0")}).WatchId)
	taken := create(&pb.WatchCreateRequest{Key: []byte("/s/1"), WatchId: 1})
	require.True(t, taken.Canceled)
	require.EqualValues(t, clientv3.InvalidWatchID, taken.WatchId)
	past := create(&pb.WatchCreateRequest{Key: []byte("/e/"), RangeEnd: []byte("/e0"), StartRevision: first.Header.Revision})
	require.EqualValues(t, 2, past.WatchId, "1 is taken")
	event := func(id int64, key string) *pb.WatchResponse {
		a, err := st.Recv()
		require.NoError(t, err)
		require.Equal(t, id, a.WatchId)
		require.Len(t, a.Events, 1)
		require.Equal(t, key, string(a.Events[0].Kv.Key))
		return a
	}
	event(2, "/e/0")
	put, err := cli.Put(ctx, "/s/0", "")
	require.NoError(t, err)
	require.Equal(t, put.Header.Revision, event(0, "/s/0").Header.Revision)
	require.NoError(t, st.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: 0}}}))
	a, err := st.Recv()
	require.NoError(t, err)
	require.True(t, a.Canceled)
	_, err = cli.Put(ctx, "/s/1", "")
	require.NoError(t, err)
	event(1, "/s/1")
	_, err = cli.Put(ctx, "/e/1", "")
	require.NoError(t, err)
	event(2, "/e/1")

	// Over both, from now on.
	both := cli.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	require.True(t, (<-both).Created)
	for i, key := range []string{"/s/x", "/e/x", "/s/y"} {
		_, err := cli.Put(ctx, key, fmt.Sprint(i))
		require.NoError(t, err)
		r := <-both
		require.NoError(t, r.Err())
		require.Equal(t, key, string(r.Events[0].Kv.Key))
	}

	// It stops with open watches.
	code, took, err := w.sidecar.Stop()
	require.NoError(t, err)
	require.Zero(t, code)
	require.Less(t, took, 5*time.Second)
}

// TestComposedWithoutOne: while a cluster is away, keys of the other go on, and so do watches of these; its own are cancelled.
func TestComposedWithoutOne(t *testing.T) {
	t.Parallel()
	w := composedOf(t)
	cli := dial(t, w.sidecar.ClientURL, clientv3.Config{})
	ctx := soon(t)
	_, err := cli.Put(ctx, "/e/k", "v")
	require.NoError(t, err)
	require.Contains(t, page(w.sidecar.ClientURL+"/health"), `"true"`)
	theirs, ours := cli.Watch(ctx, "/e/k", clientv3.WithCreatedNotify()), cli.Watch(ctx, "/s/k", clientv3.WithCreatedNotify())
	require.True(t, (<-theirs).Created)
	require.True(t, (<-ours).Created)
	require.NoError(t, w.etcd.Servers[0].Kill())
	require.Eventually(t, func() bool {
		_, err := cli.Put(ctx, "/e/k", "w")
		return status.Code(err) == codes.Unavailable
	}, limit, 50*time.Millisecond)
	_, err = cli.Put(ctx, "/e/k", "w")
	require.ErrorContains(t, err, "theirs")
	_, open := <-theirs
	require.False(t, open)
	_, err = cli.Put(ctx, "/s/k", "v")
	require.NoError(t, err)
	require.Equal(t, "v", string((<-ours).Events[0].Kv.Value))
	require.Contains(t, page(w.sidecar.ClientURL+"/readyz"), "ok")
	require.Contains(t, page(w.sidecar.ClientURL+"/health"), `"false"`)
	require.NoError(t, w.etcd.Restart(ctx, w.etcd.Servers[0]))
	require.Eventually(t, func() bool {
		_, err := cli.Put(ctx, "/e/k", "x")
		return err == nil
	}, limit, 50*time.Millisecond)
	got, err := cli.Get(ctx, "/e/k")
	require.NoError(t, err)
	require.Equal(t, "x", string(got.Kvs[0].Value))
}

// TestComposedClients: a connection beyond --max-clients is refused, whatever it asks for. The others go on, and
// the next one is served once one of them has ended.
func TestComposedClients(t *testing.T) {
	t.Parallel()
	w := composedOf(t, "--max-clients=2")
	ctx := soon(t)
	put := func(cli *clientv3.Client) error {
		_, err := cli.Put(ctx, "/s/k", "v")
		return err
	}
	first, second := dial(t, w.sidecar.ClientURL, clientv3.Config{}), dial(t, w.sidecar.ClientURL, clientv3.Config{})
	require.NoError(t, put(first))
	require.NoError(t, put(second))
	third := dial(t, w.sidecar.ClientURL, clientv3.Config{})
	err := put(third)
	require.Equal(t, codes.ResourceExhausted, status.Code(err), err)
	require.ErrorContains(t, err, "too many connections (--max-clients)")
	_, err = third.Grant(ctx, 60)
	require.Equal(t, codes.ResourceExhausted, status.Code(err), err)
	for answer := range third.Watch(ctx, "/e/", clientv3.WithPrefix()) {
		require.Error(t, answer.Err())
	}
	require.NoError(t, put(first))
	require.NoError(t, second.Close())
	require.Eventually(t, func() bool { return put(third) == nil }, limit, 50*time.Millisecond)
	require.NoError(t, put(first))
}

// TestComposedAwayIsLogged: the log says that a cluster of the composition doesn't answer, and why, and that it answers again.
func TestComposedAwayIsLogged(t *testing.T) {
	t.Parallel()
	w := composedOf(t)
	const away, back = "a cluster of the composition doesn't answer", "a cluster of the composition answers again"
	require.NotContains(t, w.sidecar.LogTail(1<<20), away)
	require.NoError(t, w.sidecar.Kill())
	require.NoError(t, w.etcd.Servers[0].Kill())
	again(t, w.sidecar)
	says(t, w.sidecar, away, "theirs", "connection refused")
	require.NoError(t, w.etcd.Restart(soon(t), w.etcd.Servers[0]))
	says(t, w.sidecar, back)
}
