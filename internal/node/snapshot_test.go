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

// A server that was away for longer than the others keep their logs gets the
// whole file, also while writes go on, and then has the same history as they.
func TestLaggingFollowerGetsASnapshot(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 3} {
		t.Run(fmt.Sprintf("partitions=%d", partitions), func(t *testing.T) {
			c := newCluster(t, 3, partitions, shortLog)
			c.ready()
			c.put(0, "first", "1")
			c.stop(2)
			for i := range 300 {
				c.put(i%2, fmt.Sprintf("/dir%d/key", i%20), fmt.Sprint(i))
			}
			for i := range 2 {
				require.NoError(t, c.nodes[i].flushNow())
			}
			c.start(2)
			// Writes go on while the snapshot is on its way.
			for i := range 50 {
				c.put(0, fmt.Sprintf("/dir%d/key", i%20), fmt.Sprint("late", i))
			}
			c.ready()
			want, got := c.get(0, "\x00", "\x00"), c.get(2, "\x00", "\x00")
			require.Len(t, want.Kvs, 21)
			require.Equal(t, len(want.Kvs), len(got.Kvs))
			for i := range want.Kvs {
				require.Equal(t, want.Kvs[i].String(), got.Kvs[i].String())
			}
			require.Equal(t, c.hash(0, got.Header.Revision), c.hash(2, got.Header.Revision))
			require.True(t, c.nodes[2].installed.Load() > 0, "it did not come by snapshot")

			// It goes on from there, also after a restart.
			c.stop(2)
			c.start(2)
			c.ready()
			rev := c.put(2, "last", "1")
			require.Equal(t, rev, c.get(2, "last", "").Kvs[0].ModRevision)
		})
	}
}

func (c *cluster) hash(i int, rev int64) uint32 {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	h, err := c.nodes[i].HashKV(ctx, rev)
	require.NoError(c.t, err)
	return h.Hash
}

// Watches continue over the installation of a snapshot: no event is missed or
// delivered twice.
func TestWatchLivesThroughASnapshot(t *testing.T) {
	c := newCluster(t, 3, 2, shortLog)
	c.ready()
	c.put(0, "/w/0", "0")
	s := c.nodes[2].NewWatchStream(context.Background())
	defer s.Close()
	s.Create(&pb.WatchCreateRequest{Key: []byte("\x00"), RangeEnd: []byte("\x00"), StartRevision: 1})

	// Cut off from the others, its transport down, it falls behind.
	c.servers[2].Stop()
	for i := 1; i < 200; i++ {
		c.put(i%2, fmt.Sprintf("/w/%d", i), fmt.Sprint(i))
	}
	for i := range 2 {
		require.NoError(t, c.nodes[i].flushNow())
	}
	c.serve(2)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	seen, last := 0, int64(0)
	for seen < 200 {
		r, err := s.Recv(ctx)
		require.NoError(t, err)
		for _, e := range r.Events {
			require.Greater(t, e.Kv.ModRevision, last)
			last = e.Kv.ModRevision
			if e.Kv.Version > 1 {
				continue // a put that was repeated
			}
			require.Equal(t, fmt.Sprintf("/w/%d", seen), string(e.Kv.Key))
			seen++
		}
	}
	require.True(t, c.nodes[2].installed.Load() > 0, "it did not come by snapshot")
}

// While a follower takes in a snapshot, and until it has caught up from there, the
// leader keeps the log that it will ask for: one snapshot is enough, however much is
// written meanwhile.
func TestASnapshotIsFollowedByTheLog(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 2, shortLog)
	c.stop(2)
	var writers sync.WaitGroup
	defer writers.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for w := range 8 {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				key := fmt.Sprintf("/dir%d/%d", w, i%20)
				_, _ = c.nodes[i%2].Put(ctx, &pb.PutRequest{Key: []byte(key), Value: make([]byte, 1000)})
			}
		})
	}
	written := func(i int) int64 { return c.nodes[i].Revision() }
	require.Eventually(t, func() bool { return written(0) > 1000 }, time.Minute, 10*time.Millisecond)
	c.start(2)
	require.Eventually(t, func() bool { return c.nodes[2].installed.Load() > 0 }, time.Minute, time.Millisecond, "it did not come by snapshot")
	after := written(0)
	require.Eventually(t, func() bool { return written(2) > after+500 }, time.Minute, 10*time.Millisecond)
	cancel()
	writers.Wait()
	require.EqualValues(t, 1, c.nodes[2].installed.Load())
	for i := range 2 { // and then no more than it must
		require.Eventually(t, func() bool { return c.nodes[i].core.Load().replica.Needed(0) == 0 }, time.Minute, 10*time.Millisecond)
	}
}

// A client's snapshot is throttled only while there are writes.
func TestWritten(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.ready()
	c.put(0, "a", "1")
	written := c.nodes[0].written()
	still := func() bool { return !written() }
	require.Eventually(t, still, time.Minute, time.Millisecond)
	time.Sleep(300 * time.Millisecond) // ticks, closed revisions and flushes are none
	require.False(t, written())
	c.put(0, "a", "2")
	require.Eventually(t, written, time.Minute, time.Millisecond)
	require.Eventually(t, still, time.Minute, time.Millisecond)
}
