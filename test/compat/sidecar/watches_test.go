package sidecar

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/test/process"
)

// number is a metric without labels; -1 if it can't be had.
func number(s *process.Server, name string) int {
	found := regexp.MustCompile("(?m)^" + name + " (.*)$").FindStringSubmatch(page(s.ClientURL + "/metrics"))
	if found == nil {
		return -1
	}
	n, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		return -1
	}
	return int(n)
}

// watchersAt counts the watchers of members; those that are down have none.
func watchersAt(c *process.Cluster) (sum int) {
	for _, s := range c.Servers {
		sum += max(0, number(s, "etcd_debugging_mvcc_watcher_total"))
	}
	return sum
}

// TestWatchesFollow: many watches of one range are one at a member; each has all events, also when that
// member fails, and progress.
func TestWatchesFollow(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 2})
	for _, transport := range []string{"grpc-go", "own"} {
		s := beside(t, c, "sidecar-"+transport, "--grpc-transport="+transport)
		cli := dial(t, s.ClientURL, clientv3.Config{})
		clients := []*clientv3.Client{cli, dial(t, s.ClientURL, clientv3.Config{}), dial(t, s.ClientURL, clientv3.Config{})}
		ctx, cancel := context.WithCancel(soon(t))
		put := func(key string) int64 {
			var rev int64
			require.Eventually(t, func() bool {
				r, err := cli.Put(ctx, key, "v")
				if err == nil {
					rev = r.Header.Revision
				}
				return err == nil
			}, limit, time.Millisecond)
			return rev
		}
		first := put("/f/0")
		var all []clientv3.WatchChan
		for i := range 60 {
			opts := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithCreatedNotify()}
			if i%3 == 0 {
				opts = append(opts, clientv3.WithRev(first))
			}
			w := clients[i%len(clients)].Watch(ctx, "/f/", opts...)
			require.True(t, (<-w).Created)
			all = append(all, w)
		}
		require.Eventually(t, func() bool { return watchersAt(c) == 1 }, limit, 10*time.Millisecond)
		require.Equal(t, 60, number(s, "stoa_sidecar_watchers"))
		var killed *process.Server
		for round := range 4 {
			if round == 1 {
				for _, m := range c.Servers {
					if number(m, "etcd_debugging_mvcc_watcher_total") > 0 {
						killed = m
						require.NoError(t, m.Kill())
						break
					}
				}
			}
			put(fmt.Sprintf("/f/%d", round+1))
		}
		last := put("/f/last")
		for i, w := range all {
			var revs []int64
			for len(revs) == 0 || revs[len(revs)-1] < last {
				r := <-w
				require.NoError(t, r.Err())
				for _, e := range r.Events {
					revs = append(revs, e.Kv.ModRevision)
				}
			}
			at := first
			if i%3 != 0 {
				at++
			}
			require.Equal(t, at, revs[0], "a watch from now doesn't see what its client has put before")
			for n := 1; n < len(revs); n++ {
				require.Greater(t, revs[n], revs[n-1])
			}
			got, err := cli.Get(ctx, "/f/", clientv3.WithPrefix(), clientv3.WithMinModRev(at))
			require.NoError(t, err)
			require.Subset(t, revs, modRevisions(got))
		}
		require.NoError(t, cli.RequestProgress(ctx))
		r := <-all[0]
		require.True(t, r.IsProgressNotify())
		require.GreaterOrEqual(t, r.Header.Revision, last)
		cancel()
		require.Eventually(t, func() bool { return watchersAt(c) == 0 }, limit, 10*time.Millisecond)
		require.NoError(t, s.Kill())
		require.NotNil(t, killed)
		require.NoError(t, c.Restart(soon(t), killed))
	}
}

// TestWatchRequiresLeader: such a watch ends when its member has no leader, and others don't.
func TestWatchRequiresLeader(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 3})
	s := beside(t, c, "sidecar")
	cli := dial(t, s.ClientURL, clientv3.Config{})
	ctx := soon(t)
	requires := cli.Watch(clientv3.WithRequireLeader(ctx), "k", clientv3.WithCreatedNotify())
	patient := cli.Watch(ctx, "k", clientv3.WithCreatedNotify())
	require.True(t, (<-requires).Created)
	require.True(t, (<-patient).Created)
	require.Equal(t, 2, number(s, "stoa_sidecar_upstream_watchers"))
	require.NoError(t, c.Servers[0].Kill())
	require.NoError(t, c.Servers[1].Kill())
	ended := <-requires
	require.ErrorIs(t, ended.Err(), rpctypes.ErrNoLeader)
	require.NoError(t, c.Restart(soon(t), c.Servers[0]))
	require.Eventually(t, func() bool {
		_, err := cli.Put(ctx, "k", "v")
		return err == nil
	}, limit, time.Millisecond)
	r := <-patient
	require.NoError(t, r.Err())
	require.Equal(t, "v", string(r.Events[0].Kv.Value))
}

func modRevisions(r *clientv3.GetResponse) (all []int64) {
	for _, kv := range r.Kvs {
		all = append(all, kv.ModRevision)
	}
	return all
}

// TestSlowWatch: a client that doesn't read holds up no other one; when it reads, it gets all.
func TestSlowWatch(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 1, Partitions: 2})
	s := beside(t, c, "sidecar")
	slow, fast := dial(t, s.ClientURL, clientv3.Config{}), dial(t, s.ClientURL, clientv3.Config{})
	ctx := soon(t)
	stuck := stuckWatch(t, slow, "/s/")
	reading := fast.Watch(ctx, "/s/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-reading
	value := strings.Repeat("x", 256<<10)
	const puts = 40
	for i := range puts {
		_, err := fast.Put(ctx, fmt.Sprintf("/s/%d", i), value)
		require.NoError(t, err)
	}
	for n := 0; n < puts; {
		r := <-reading
		require.NoError(t, r.Err())
		n += len(r.Events)
	}
	for n := 0; n < puts; {
		r, err := stuck.Recv()
		require.NoError(t, err)
		for _, e := range r.Events {
			require.Equal(t, fmt.Sprintf("/s/%d", n), string(e.Kv.Key))
			n++
		}
	}
	_, err := fast.Compact(ctx, 20)
	require.NoError(t, err)
	r := <-fast.Watch(ctx, "/s/", clientv3.WithPrefix(), clientv3.WithRev(3))
	require.EqualValues(t, 20, r.CompactRevision, "what is kept of events doesn't show what is compacted")
}

// TestWatchesOfExtensions: once there are extensions, which may handle watches, each watch is forwarded.
func TestWatchesOfExtensions(t *testing.T) {
	t.Parallel()
	c := process.StartT(t, process.Spec{Nodes: 1, Partitions: 2})
	s := beside(t, c, "sidecar")
	cli := dial(t, s.ClientURL, clientv3.Config{})
	ctx := soon(t)
	before := cli.Watch(ctx, "/w", clientv3.WithCreatedNotify())
	<-before
	require.Equal(t, 1, number(s, "stoa_sidecar_watchers"))
	_, err := cli.Put(ctx, "/em/wait", waiting)
	require.NoError(t, err)
	r := <-cli.Watch(ctx, "/wait/me")
	require.NoError(t, r.Err())
	require.Equal(t, "now", string(r.Events[0].Kv.Value))
	_, err = cli.Put(ctx, "/w", "v")
	require.NoError(t, err)
	r = <-before
	require.Equal(t, "v", string(r.Events[0].Kv.Value))
	require.Zero(t, number(s, "stoa_sidecar_watchers"))
}

const waiting = `return {
  scope = { "/wait/" },
  operations = { { op = "block", prefix = "/wait/" } },
  block = function(request) return "now" end,
}`

// stuckWatch opens a watch whose answers its caller reads.
func stuckWatch(t *testing.T, cli *clientv3.Client, prefix string) pb.Watch_WatchClient {
	stream, err := pb.NewWatchClient(cli.ActiveConnection()).Watch(soon(t))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: []byte(prefix), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(prefix))}}}))
	r, err := stream.Recv()
	require.NoError(t, err)
	require.True(t, r.Created)
	return stream
}
