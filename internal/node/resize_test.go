package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/version"
)

// The number of partitions changes under a load, and back; nothing is lost, revisions only
// grow, and watches get everything once. A member that was away meanwhile comes back, also if all
// restart.
func TestResizeUnderLoad(t *testing.T) {
	c := newCluster(t, 3, 1)
	c.ready()
	c.agreed(version.Newest)
	w := c.nodes[1].NewWatchStream(context.Background())
	defer w.Close()
	w.Create(&pb.WatchCreateRequest{Key: []byte("\x00"), RangeEnd: []byte("\x00"), StartRevision: 1})

	ctx, cancel := context.WithCancel(context.Background())
	var writers sync.WaitGroup
	written := make([]map[string]string, 4)
	var longest [4]time.Duration
	for i := range written {
		written[i] = map[string]string{}
		writers.Go(func() {
			last := int64(0)
			for k := 0; ctx.Err() == nil; k++ {
				key, value := fmt.Sprintf("/dir%d/%d/key%d", i, k%7, k%20), fmt.Sprint(k)
				began := time.Now()
				resp, err := c.nodes[i%2].Put(context.Background(), &pb.PutRequest{Key: []byte(key), Value: []byte(value)})
				longest[i] = max(longest[i], time.Since(began))
				if err != nil {
					delete(written[i], key) // it may have been written or not
					continue
				}
				if resp.Header.Revision <= last {
					t.Errorf("revision %d after %d", resp.Header.Revision, last)
				}
				last, written[i][key] = resp.Header.Revision, value
			}
		})
	}
	for round, n := range []int{4, 2, 16, 1, 3} {
		if round == 2 {
			c.stop(2)
		}
		time.Sleep(200 * time.Millisecond)
		resizing, done := context.WithTimeout(context.Background(), time.Minute)
		require.NoError(t, c.nodes[round%2].Resize(resizing, n))
		done()
		require.Len(t, c.nodes[round%2].current().stores, n)
		if round == 3 {
			c.start(2)
		}
	}
	time.Sleep(200 * time.Millisecond)
	cancel()
	writers.Wait()
	t.Logf("the slowest puts took %v", longest)
	check := func() {
		c.ready()
		for i := range c.nodes {
			have := map[string]string{}
			for _, kv := range c.get(i, "\x00", "\x00").Kvs {
				have[string(kv.Key)] = string(kv.Value)
			}
			for _, m := range written {
				for key, value := range m {
					require.Equal(t, value, have[key], key)
				}
			}
			require.Len(t, c.nodes[i].current().stores, 3)
		}
	}
	check()
	rev := c.put(0, "last", "1")
	seen := int64(0)
	for seen < rev {
		receiving, done := context.WithTimeout(context.Background(), time.Minute)
		r, err := w.Recv(receiving)
		done()
		require.NoError(t, err)
		for _, e := range r.Events {
			require.Greater(t, e.Kv.ModRevision, seen)
			seen = e.Kv.ModRevision
		}
	}
	for i := range c.nodes {
		c.stop(i)
	}
	for i := range c.nodes {
		c.start(i)
	}
	check()
}

// A watch that was reading history when partitions went is told that they are gone.
func TestHistoryOfAPartitionThatIsGone(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.ready()
	c.agreed(version.Newest)
	n := c.nodes[0]
	read := func(partition int) error {
		_, _, err := n.history(partition, []byte{0}, []byte{0}, 1, 1, store.Bounds{}, false)
		return err
	}
	require.NoError(t, read(1))
	require.NoError(t, n.Resize(t.Context(), 1))
	require.NoError(t, read(0))
	require.ErrorIs(t, read(1), fault.Moved)
}

// A watch reads history while a change of the number of partitions takes its key to another store: it reads again
// once the hub knows of that.
func TestHistoryOfAKeyThatGoes(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.ready()
	c.agreed(version.Newest)
	n := c.nodes[0]
	core := n.core.Load()
	key := []byte("k")
	for core.machine.Placement().Partition(key) != 1 {
		key = append(key, 'k')
	}
	rev := c.put(0, string(key), "v")
	move := func(to int) {
		all := store.Route{To: func([]byte) (int, []byte) { return to, nil }}
		require.Equal(t, 1, store.Move(core.stores, key, append(key, 0), all, nil))
	}
	n.rebuild.Lock()
	store.LockAll(core.stores)
	read := make(chan []store.Change, 1)
	go func() {
		changes, _, _ := n.history(1, key, nil, rev, rev, store.Bounds{}, false)
		read <- changes
	}()
	time.Sleep(50 * time.Millisecond) // it waits for the store
	core.stale.Store(true)
	move(0)
	store.UnlockAll(core.stores)
	select {
	case early := <-read:
		read <- early
	case <-time.After(200 * time.Millisecond):
	}
	store.LockAll(core.stores)
	move(1)
	store.UnlockAll(core.stores)
	core.stale.Store(false)
	n.rebuild.Unlock()
	require.Len(t, <-read, 1)
}

// Nor does it by a snapshot that takes partitions back, which then come through their own log again.
func TestTheRevisionDoesNotGoBackByASnapshot(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 2)
	c.ready()
	i := (c.leading() + 1) % 3
	n := c.nodes[i]
	rev := c.put(0, "a", "1")
	require.Eventually(t, func() bool { return n.Revision() >= rev }, time.Minute, time.Millisecond)
	require.NoError(t, n.flushNow())
	s, head, err := n.snapshot()
	require.NoError(t, err)
	var file bytes.Buffer
	_, err = s.WriteTo(&file)
	require.NoError(t, errors.Join(err, s.Close()))
	for k := range 20 {
		rev = c.put(0, fmt.Sprintf("/%d/k", k), "2")
	}
	require.Eventually(t, func() bool { return n.Revision() >= rev }, time.Minute, time.Millisecond)

	c.servers[i].Stop() // it hears of no leader any more
	identity := backend.Identity{Cluster: n.cfg.ClusterID, Server: n.cfg.ID}
	require.NoError(t, backend.Receive(n.dbPath(), identity, &file))
	require.NoError(t, n.replace(head.GetGeneration()))
	require.Less(t, n.core.Load().revision(), rev)
	require.GreaterOrEqual(t, n.Revision(), rev)
}

// What a server tells as its revision doesn't go back: not when the number of partitions changes, nor at a restart without the others.
func TestTheRevisionDoesNotGoBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 2)
	c.ready()
	c.agreed(version.Newest)
	rev := c.put(0, "a", "1")
	ctx, cancel := context.WithCancel(context.Background())
	var readers sync.WaitGroup
	for _, n := range c.nodes {
		readers.Go(func() {
			for last := int64(0); ctx.Err() == nil; time.Sleep(time.Millisecond) {
				now := n.Revision()
				if now < last {
					t.Errorf("revision %d after %d", now, last)
					return
				}
				last = now
			}
		})
	}
	require.NoError(t, c.nodes[0].Resize(t.Context(), 3))
	cancel()
	readers.Wait()
	c.stop(0)
	c.stop(1)
	c.start(0)
	require.GreaterOrEqual(t, c.nodes[0].Revision(), rev)
}

// Two operators change the number of partitions at the same time. The change that comes second finds more than it was made for:
// it has the keys leave those that go first, instead of moving all at the change.
func TestDrainedBehindAnotherChange(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	c.ready()
	c.agreed(version.Newest)
	n := c.nodes[0]
	held := n.core.Load().stores[0]
	held.Lock() // nothing is applied
	var changes sync.WaitGroup
	change := func(to int) {
		changes.Go(func() {
			if err := n.Resize(t.Context(), to); err != nil {
				t.Error(err)
			}
		})
	}
	change(8)
	require.Eventually(t, func() bool { return !n.core.Load().replica.Leading() }, 20*time.Second, time.Millisecond, "it is in the log")
	change(3)
	time.Sleep(50 * time.Millisecond)
	var between *core
	seen := make(chan struct{})
	go func() { // it may not last
		defer close(seen)
		for between = n.core.Load(); len(between.stores) != 8 && t.Context().Err() == nil; between = n.core.Load() {
			time.Sleep(100 * time.Microsecond)
		}
	}()
	held.Unlock()
	<-seen
	changes.Wait()
	require.Len(t, n.core.Load().stores, 3)
	require.True(t, between.machine.Placement().Settled().Within(3), "not drained")
}

// A forced server has to recover again behind a change of the number of partitions. It does while its file is being read, which may take long.
func TestAForcedServerIsResizedBesideABackup(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.ready()
	c.agreed(version.Newest)
	c.put(0, "/k", "v")
	n := c.nodes[0]
	s, err := n.backup(t.Context())
	require.NoError(t, err)
	n.rebuild.Lock()
	n.cfg.ForceNewCluster, n.forcing = true, true
	n.rebuild.Unlock()
	require.NoError(t, n.Resize(t.Context(), 3))
	require.Equal(t, "v", contentOf(t, s)["/k"])
	require.Equal(t, "v", string(c.value(0, "/k")))
	require.Len(t, n.current().stores, 3)
	n.rebuild.Lock()
	defer n.rebuild.Unlock()
	require.False(t, n.forcing)
}
