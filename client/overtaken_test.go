package client_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/client"
)

// lose sends requests one by one, has the server do them all, and then loses the
// replies with the connection.
func (f *fake) lose(s *client.Session, send ...func()) {
	done := make(chan struct{}, len(send))
	f.set(func() {
		f.mute = true
		f.before = func(*stoapb.Request) { done <- struct{}{} }
	})
	for _, one := range send {
		one()
		<-done
	}
	time.Sleep(10 * time.Millisecond) // the last is being done
	f.set(func() {
		f.mute, f.before = false, nil
		f.sessions[int64(s.ID())].stream.die(status.Error(codes.Unavailable, "cut"))
	})
}

// TestOvertaken loses the answers to reads between updates: resent requests are
// answered in their place, or refused.
func TestOvertaken(t *testing.T) {
	f := newFake(t, 1)
	s := f.session()
	ctx := testContext(t)
	_, err := s.Put(ctx, "k", "0")
	require.NoError(t, err)

	var early, late, fast *client.Future[*clientv3.GetResponse]
	var txn *client.Future[*clientv3.TxnResponse]
	var put *client.Future[*clientv3.PutResponse]
	f.lose(s,
		func() { early = s.GetAsync("k") },
		func() { txn = s.TxnAsync(nil, []clientv3.Op{clientv3.OpGet("k")}, nil) },
		func() { fast = s.At(client.Fast).GetAsync("k") },
		func() { put = s.PutAsync("k", "1") },
		func() { late = s.GetAsync("k") },
	)
	_, err = early.Wait(ctx)
	require.ErrorIs(t, err, client.ErrOvertaken)
	require.Equal(t, codes.Unavailable, status.Code(err))
	_, err = txn.Wait(ctx)
	require.ErrorIs(t, err, client.ErrOvertaken)
	_, err = fast.Wait(ctx)
	require.ErrorIs(t, err, client.ErrOvertaken)
	answer, err := put.Wait(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 3, answer.Header.Revision, "it took effect once")
	got, err := late.Wait(ctx)
	require.NoError(t, err, "a read behind the last update is read again")
	require.Equal(t, "1", string(got.Kvs[0].Value))
}

// TestNotOvertaken: updates that were sent after a read and have not taken
// effect don't overtake it.
func TestNotOvertaken(t *testing.T) {
	f := newFake(t, 1)
	s := f.session()
	ctx := testContext(t)
	_, err := s.Put(ctx, "k", "0")
	require.NoError(t, err)
	f.set(func() {
		f.before = func(r *stoapb.Request) {
			if r.Kind == stoapb.Kind_RANGE {
				f.cut(int64(s.ID()))
			}
		}
	})
	read := s.GetAsync("k")
	require.Eventually(t, func() (again bool) {
		f.set(func() {
			if again = len(f.sessions[int64(s.ID())].opens) > 1; again {
				f.before = nil
			}
		})
		return again
	}, 10*time.Second, time.Millisecond)
	put := s.PutAsync("k", "1")
	got, err := read.Wait(ctx)
	require.NoError(t, err)
	require.Equal(t, "0", string(got.Kvs[0].Value))
	_, err = put.Wait(ctx)
	require.NoError(t, err)
}

// TestOvertakenWatch: a watch that would lack events of its session's later
// updates is refused, and opened again for a synchronous caller.
func TestOvertakenWatch(t *testing.T) {
	f := newFake(t, 1)
	s := f.session()
	ctx := testContext(t)
	feed := client.NewFeed()
	var opened *client.Future[*client.Watch]
	f.lose(s, func() { opened = s.WatchAsync(feed, "k") }, func() { s.PutAsync("k", "1") })
	_, err := opened.Wait(ctx)
	require.ErrorIs(t, err, client.ErrOvertaken)
	_, err = feed.Next(ctx)
	require.ErrorIs(t, err, client.ErrWatchClosed)
}

// TestOvertakenCallers: synchronous callers get an answer, independent of
// requests that others have sent meanwhile.
func TestOvertakenCallers(t *testing.T) {
	f := newFake(t, 1)
	s := f.session()
	ctx := testContext(t)
	_, err := s.Put(ctx, "k", "0")
	require.NoError(t, err)
	kv, watcher := s.KV(), s.Watcher()
	calls := map[string]func() error{
		"get": func() error { _, err := s.Get(ctx, "k"); return err },
		"do":  func() error { _, err := s.Do(ctx, clientv3.OpGet("k")); return err },
		"kv":  func() error { _, err := kv.Get(ctx, "k"); return err },
		"txn": func() error { _, err := s.Txn(ctx).Then(clientv3.OpGet("k")).Commit(); return err },
		"watch": func() error {
			w, err := s.Watch(ctx, "k")
			if err == nil {
				w.Close()
			}
			return err
		},
		"watcher": func() error {
			r := <-watcher.Watch(ctx, "k", clientv3.WithCreatedNotify())
			return r.Err()
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			answered := make(chan error, 1)
			f.lose(s, func() { go func() { answered <- call() }() }, func() { s.PutAsync("k", "1") })
			require.NoError(t, <-answered)
		})
	}
}
