package node

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// gather registers an extension that does nothing but bring keys together; scatter
// removes it.
func (c *cluster) gather(i int, scope string) {
	c.put(i, "/em/gather", `return { scope = { `+scope+` }, operations = { { op = "read", key = "/nowhere" } }, read = function(r) return nil end }`)
}

func (c *cluster) scatter(i int) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := c.nodes[i].DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte("/em/gather")})
	require.NoError(c.t, err)
}

// Clients that write, read and watch through all servers don't notice that their
// keys move.
func TestNobodyNoticesMoves(t *testing.T) {
	c := newCluster(t, 3, 3)
	c.ready()
	const writes = 60
	watches := make([]func(), 3)
	for i := range c.nodes {
		s := c.nodes[i].NewWatchStream(context.Background())
		s.Create(&pb.WatchCreateRequest{Key: []byte("/w"), RangeEnd: []byte("/x"), StartRevision: 1})
		watches[i] = func() {
			defer s.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			versions, done, last := map[string]int64{}, 0, int64(0)
			for done < 3 {
				r, err := s.Recv(ctx)
				require.NoError(t, err)
				for _, e := range r.Events {
					require.GreaterOrEqual(t, e.Kv.ModRevision, last)
					last = e.Kv.ModRevision
					versions[string(e.Kv.Key)]++
					require.Equal(t, versions[string(e.Kv.Key)], e.Kv.Version, "event of %s", e.Kv.Key)
					if string(e.Kv.Value) == fmt.Sprint(writes-1) { // written once
						done++
					}
				}
			}
		}
	}
	var clients sync.WaitGroup
	for i := range c.nodes {
		key := fmt.Sprintf("/w%d/a/k", i)
		clients.Go(func() {
			for n := range writes {
				rev := c.put(i, key, fmt.Sprint(n))
				if n%2 == 0 { // the same by the other way, with the next version
					resp, err := written(context.Background(), c.nodes[i], &pb.PutRequest{Key: []byte(key), Value: []byte(fmt.Sprint(n))})
					require.NoError(t, err)
					rev = resp.GetHeader().GetRevision()
				}
				got := c.get((i+n)%3, key, "")
				require.Len(t, got.Kvs, 1)
				require.GreaterOrEqual(t, got.Header.Revision, rev)
				require.Equal(t, fmt.Sprint(n), string(got.Kvs[0].Value))
				require.NotEmpty(t, c.get(i, "/w", "/x").Kvs)
			}
		})
	}
	for n := range 12 {
		c.gather(n%3, []string{`"/w0/", "/w1/"`, `"/w1/a/", "/w2/"`, `"/w0/a/k", "/w1/a/k", "/w2/a/k"`}[n%3])
		if n%4 == 3 {
			c.scatter(n % 3)
		}
	}
	clients.Wait()
	for _, all := range watches {
		all()
	}
	rev := c.get(0, "/w", "/x").Header.Revision
	for i := range c.nodes {
		c.get(i, "/w", "/x") // catches up
		require.Equal(t, c.hash(0, rev), c.hash(i, rev))
	}
}

// Where keys are outlives a restart and goes with a snapshot.
func TestMovesAreKept(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 3, shortLog)
	c.ready()
	for i := range 60 {
		c.put(0, fmt.Sprintf("/d%d/e/k", i%6), fmt.Sprint(i))
	}
	c.stop(2) // it learns of the move from a snapshot
	c.gather(0, `"/d0/", "/d1/", "/d2/e/", "/d3/e/k"`)
	for i := range 60 {
		c.put(i%2, fmt.Sprintf("/d%d/e/k", i%6), fmt.Sprint("more", i))
	}
	for i := range 2 {
		require.NoError(t, c.nodes[i].flushNow())
	}
	c.start(2)
	c.ready()
	want := c.get(0, "/d", "/e")
	require.Len(t, want.Kvs, 6)
	require.Equal(t, want.Kvs[0].String(), c.get(2, "/d0/e/k", "").Kvs[0].String())
	require.Positive(t, c.nodes[2].installed.Load(), "it did not come by snapshot")
	for i := range c.nodes {
		if i < 2 {
			c.stop(i)
			c.start(i)
		}
	}
	c.ready()
	for i := range c.nodes {
		m := c.nodes[i].current().machine.Placement()
		require.NotEmpty(t, m.Rules())
		home := m.Partition([]byte("/d0/e/k"))
		for _, key := range []string{"/d1/x", "/d2/e/k", "/d3/e/k"} {
			require.Equal(t, home, m.Partition([]byte(key)), "%s on server %d", key, i+1)
		}
		slots := 0
		for _, p := range c.nodes[i].State().Partitions {
			slots += p.Slots
		}
		require.Equal(t, 1024, slots)
		got := c.get(i, "/d", "/e")
		require.Len(t, got.Kvs, 6)
		for n := range want.Kvs {
			require.Equal(t, want.Kvs[n].String(), got.Kvs[n].String())
		}
		require.Equal(t, c.hash(0, want.Header.Revision), c.hash(i, want.Header.Revision))
	}
}

// Keys that are on their way when servers stop are on their way when these come
// back, or when another learns of all that from a snapshot; and they arrive. Until
// all that has been seen, each leader makes one step of many.
func TestATransitOutlivesRestartsAndSnapshots(t *testing.T) {
	t.Parallel()
	const dirs, each = 100, 100
	c := newCluster(t, 3, 2, shortLog, func(c *Config) { c.StepPause = time.Hour })
	c.ready()
	for d := range dirs {
		txn := &pb.TxnRequest{}
		for k := range each {
			put := &pb.PutRequest{Key: fmt.Appendf(nil, "/d/%02d/%d", d, k), Value: fmt.Appendf(nil, "%d of %d", k, d)}
			txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}})
		}
		c.txn(0, txn)
	}
	want := c.get(0, "/d/", "/d0")
	require.Len(t, want.Kvs, dirs*each)
	onTheWay := func(i int) bool { return c.nodes[i].current().machine.Placement().Transit() != nil }

	c.stop(2)
	c.gather(0, `"/d/"`)
	for i := range 2 {
		c.stop(i)
	}
	for i := range 2 {
		c.start(i)
	}
	c.ready()
	for i := range 50 { // more than the log keeps
		c.put(i%2, "other", fmt.Sprint(i))
	}
	for i := range 2 {
		require.True(t, onTheWay(i), "server %d has forgotten it", i+1)
		require.NoError(t, c.nodes[i].flushNow())
	}
	c.start(2)
	require.Eventually(t, func() bool { return c.nodes[2].installed.Load() > 0 }, 20*time.Second, time.Millisecond, "it did not come by snapshot")
	require.Eventually(t, func() bool { return onTheWay(2) }, 20*time.Second, time.Millisecond, "the snapshot does not tell")

	for i := range c.nodes {
		c.stop(i)
		c.configs[i].StepPause = 0
		c.start(i)
	}
	c.ready()
	rev := c.put(0, "/late", "1")
	for i := range c.nodes {
		require.Eventually(t, func() bool { return !onTheWay(i) }, 60*time.Second, 10*time.Millisecond)
		got := c.get(i, "/d/", "/d0")
		require.Len(t, got.Kvs, dirs*each)
		for n := range want.Kvs {
			require.Equal(t, want.Kvs[n].String(), got.Kvs[n].String())
		}
		require.Equal(t, c.hash(0, rev), c.hash(i, rev))
	}
}
