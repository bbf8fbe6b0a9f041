package client_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/client"
)

func TestWatch(t *testing.T) {
	f := newFake(t, 1)
	s := f.session()
	ctx := testContext(t)
	_, err := s.Put(ctx, "/w/0", "before")
	require.NoError(t, err)
	w, err := s.Watch(ctx, "/w/", clientv3.WithPrefix())
	require.NoError(t, err)
	_, err = s.Put(ctx, "/w/1", "v")
	require.NoError(t, err)
	n, ok := w.TryNext()
	require.True(t, ok, "an event is there before the answer of a later request")
	require.Equal(t, "/w/1", string(n.Events[0].Kv.Key))
	require.EqualValues(t, 3, n.Revision)
	require.Same(t, w, n.Watch)

	past, err := s.Watch(ctx, "/w/", clientv3.WithPrefix(), clientv3.WithRev(2))
	require.NoError(t, err)
	n, err = past.Next(ctx)
	require.NoError(t, err)
	require.Equal(t, "/w/0", string(n.Events[0].Kv.Key))
	_, err = s.Progress(ctx)
	require.NoError(t, err)

	w.Close()
	_, err = s.Put(ctx, "/w/2", "v")
	require.NoError(t, err)
	_, err = w.Next(ctx)
	require.ErrorIs(t, err, client.ErrWatchClosed)
	require.ErrorIs(t, w.Err(), client.ErrWatchClosed)

	_, err = s.Watch(ctx, "compacted")
	require.ErrorIs(t, err, rpctypes.ErrCompacted)
}

// An extension's answer to the opening of a watch is older than the opening, and what it
// makes its client wait for stays that when the stream breaks.
func TestWatchBeginsWithAnAnswer(t *testing.T) {
	f := newFake(t, 1)
	s := f.session()
	ctx := testContext(t)
	for range 3 {
		_, err := s.Put(ctx, "other", "")
		require.NoError(t, err)
	}
	w, err := s.Watch(ctx, "extended")
	require.NoError(t, err)
	n, err := w.Next(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 3, n.Events[0].Kv.ModRevision)
	for rev := int64(5); rev < 8; rev++ {
		_, err = s.Put(ctx, "behind", "again")
		require.NoError(t, err)
		n, err = w.Next(ctx)
		require.NoError(t, err)
		require.EqualValues(t, rev, n.Events[0].Kv.ModRevision)
		f.cut(int64(s.ID()))
	}
}

// What an extension did as it answered a fast watch is seen, as other writes are.
func TestAFastWatchThatIsACallIsSeen(t *testing.T) {
	f := newFake(t, 1)
	s, other := f.session(), f.session()
	ctx := testContext(t)
	resp, err := other.Put(ctx, "other", "")
	require.NoError(t, err)
	_, err = s.At(client.Fast).Watch(ctx, "ordinary")
	require.NoError(t, err)
	require.Less(t, s.Token(), resp.Header.Revision)
	_, err = s.At(client.Fast).Watch(ctx, "extended")
	require.NoError(t, err)
	require.GreaterOrEqual(t, s.Token(), resp.Header.Revision)
}

// A watch on which nothing has happened goes on behind what the session's other watches and its reads have shown; what is far
// behind goes on there.
func TestIdleWatchesGoOnFromThePresent(t *testing.T) {
	f := newFake(t, 1)
	s := f.session()
	ctx := testContext(t)
	put := func(key string) int64 {
		resp, err := s.Put(ctx, key, "v")
		require.NoError(t, err)
		return resp.Header.Revision
	}
	resumed := func() (from []int64) {
		f.cut(int64(s.ID()))
		_, err := s.Sync(ctx)
		require.NoError(t, err)
		f.mu.Lock()
		defer f.mu.Unlock()
		opens := f.sessions[int64(s.ID())].opens
		for _, w := range opens[len(opens)-1].Watches {
			var ask pb.WatchCreateRequest
			require.NoError(t, proto.Unmarshal(w.Body, &ask))
			from = append(from, ask.StartRevision)
		}
		return from
	}
	idle, err := s.Watch(ctx, "/idle")
	require.NoError(t, err)
	_, err = s.At(client.Fast).Watch(ctx, "/fast")
	require.NoError(t, err)
	busy, err := s.Watch(ctx, "/w/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Equal(t, []int64{2, 2, 2}, resumed())

	shown := put("/w/1")
	_, err = busy.Next(ctx)
	require.NoError(t, err)
	require.Equal(t, []int64{shown, 2, shown + 1}, resumed(), "another event of that revision may come")

	shown = put("/other")
	_, err = s.Get(ctx, "/other")
	require.NoError(t, err)
	require.Equal(t, []int64{shown + 1, 2, shown + 1}, resumed())

	// Its events come in order, behind those of a later revision.
	_, err = s.Watch(ctx, "/w/", clientv3.WithPrefix(), clientv3.WithRev(2))
	require.NoError(t, err)
	from := resumed()
	require.LessOrEqual(t, from[len(from)-1], int64(3))
	require.Equal(t, []int64{shown + 1, 2, shown + 1}, from[:3])

	last := put("/idle")
	n, err := idle.Next(ctx)
	require.NoError(t, err)
	require.Equal(t, last, n.Revision)
}

// TestWatchesGoOn breaks streams under watches: each event comes once, in order,
// the events of all watches of a feed in their common order.
func TestWatchesGoOn(t *testing.T) {
	f := newFake(t, 2)
	s := f.session()
	ctx := testContext(t)
	feed := client.NewFeed()
	_, err := s.WatchInto(ctx, feed, "/a/", clientv3.WithPrefix())
	require.NoError(t, err)
	_, err = s.WatchInto(ctx, feed, "/b/", clientv3.WithPrefix())
	require.NoError(t, err)
	const n = 300
	writer := f.session()
	go func() {
		for range 20 {
			time.Sleep(5 * time.Millisecond)
			f.cut(int64(s.ID()))
		}
	}()
	for i := range n {
		_, err := writer.Put(ctx, fmt.Sprintf("/%c/%d", "aab"[i%3], i), "")
		require.NoError(t, err)
		time.Sleep(100 * time.Microsecond)
	}
	seen := 0
	for e := range feed.Chan() {
		for _, e := range e.Events {
			require.Equal(t, fmt.Sprintf("/%c/%d", "aab"[seen%3], seen), string(e.Kv.Key))
			seen++
		}
		if seen == n {
			break
		}
	}
}

// TestAbandonedSession has all watches end with their session.
func TestAbandonedSession(t *testing.T) {
	f := newFake(t, 1)
	c := f.client()
	s, err := c.Session(testContext(t))
	require.NoError(t, err)
	w, err := s.Watch(testContext(t), "k")
	require.NoError(t, err)
	events := w.Chan()
	require.NoError(t, c.Close())
	last := <-events
	require.ErrorIs(t, last.Err, client.ErrSessionClosed)
	_, more := <-events
	require.False(t, more)
}

// TestEtcdWatcher runs etcd's own watcher over a session whose streams break.
func TestEtcdWatcher(t *testing.T) {
	f := newFake(t, 2)
	s := f.session()
	ctx := testContext(t)
	w := s.Watcher()
	defer w.Close()
	events := w.Watch(ctx, "/w/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	created := <-events
	require.True(t, created.Created)
	const n = 100
	for i := range n {
		_, err := s.KV().Put(ctx, fmt.Sprint("/w/", i), "")
		require.NoError(t, err)
		if i%10 == 0 {
			f.cut(int64(s.ID()))
		}
	}
	for i := 0; i < n; {
		for _, e := range (<-events).Events {
			require.Equal(t, fmt.Sprint("/w/", i), string(e.Kv.Key))
			i++
		}
	}
	require.NoError(t, w.RequestProgress(ctx))
	progress := <-events
	require.True(t, progress.IsProgressNotify())

	refused := <-w.Watch(ctx, "compacted")
	require.ErrorIs(t, refused.Err(), rpctypes.ErrCompacted)
}
