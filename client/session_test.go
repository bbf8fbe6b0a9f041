package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/client"
)

func TestCalls(t *testing.T) {
	f := newFake(t, 1)
	s := f.session()
	ctx := testContext(t)

	put, err := s.Put(ctx, "/a/1", "one")
	require.NoError(t, err)
	require.EqualValues(t, 2, put.Header.Revision)
	require.EqualValues(t, 77, put.Header.ClusterId)
	require.EqualValues(t, 1, put.Header.MemberId)
	require.Nil(t, put.PrevKv)
	put, err = s.Put(ctx, "/a/1", "two", clientv3.WithPrevKV())
	require.NoError(t, err)
	require.Equal(t, "one", string(put.PrevKv.Value))
	_, err = s.Put(ctx, "/a/2", "")
	require.NoError(t, err)

	got, err := s.Get(ctx, "/a/1")
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
	require.Equal(t, "two", string(got.Kvs[0].Value))
	require.EqualValues(t, 2, got.Kvs[0].Version)
	require.EqualValues(t, 4, got.Header.Revision)
	got, err = s.Get(ctx, "/a/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, got.Kvs, 2)
	require.EqualValues(t, 2, got.Count)
	got, err = s.Get(ctx, "/a/", clientv3.WithPrefix(), clientv3.WithLimit(1))
	require.NoError(t, err)
	require.True(t, got.More)
	got, err = s.Get(ctx, "/none")
	require.NoError(t, err)
	require.Empty(t, got.Kvs)

	txn, err := s.Txn(ctx).If(clientv3.Compare(clientv3.Version("/a/1"), "=", 2)).
		Then(clientv3.OpPut("/a/3", "x", client.Ephemeral()), clientv3.OpGet("/a/1")).Commit()
	require.NoError(t, err)
	require.True(t, txn.Succeeded)
	require.Equal(t, "two", string(txn.Responses[1].GetResponseRange().Kvs[0].Value))

	done, err := s.Do(ctx, clientv3.OpDelete("/a/", clientv3.WithPrefix(), clientv3.WithPrevKV()))
	require.NoError(t, err)
	require.EqualValues(t, 3, done.Del().Deleted)
	require.EqualValues(t, s.ID(), done.Del().PrevKvs[2].Lease)
	del, err := s.Delete(ctx, "/a/1")
	require.NoError(t, err)
	require.Zero(t, del.Deleted)
	token, err := s.Sync(ctx)
	require.NoError(t, err)
	require.Equal(t, s.Token(), token)
	require.EqualValues(t, 6, token)

	_, err = s.Put(ctx, "refuse", "")
	require.ErrorIs(t, err, rpctypes.ErrEmptyKey, "errors are those of etcd's client")
}

func TestEphemeral(t *testing.T) {
	f := newFake(t, 1)
	c := f.client()
	ctx := testContext(t)
	s, err := c.Session(ctx)
	require.NoError(t, err)
	_, err = s.Put(ctx, "/here", "", client.Ephemeral())
	require.NoError(t, err)
	other, err := c.Session(ctx)
	require.NoError(t, err)
	w, err := other.Watch(ctx, "/here")
	require.NoError(t, err)
	require.NoError(t, s.Close(ctx))
	n, err := w.Next(ctx)
	require.NoError(t, err)
	require.Equal(t, clientv3.EventTypeDelete, n.Events[0].Type)

	require.ErrorIs(t, s.Err(), client.ErrSessionClosed)
	_, err = s.Put(ctx, "/here", "")
	require.ErrorIs(t, err, client.ErrSessionClosed)
	require.NoError(t, s.Close(ctx), "closing twice is closing")
}

// TestNumbers sends a lot without waiting, over a stream that breaks all the time:
// every request takes effect once, in its place, and has the answer of that time.
func TestNumbers(t *testing.T) {
	f := newFake(t, 3)
	f.breaks, f.window = 0.01, 50
	s := f.session()
	ctx := testContext(t)
	const n = 2000
	var puts []*client.Future[*clientv3.PutResponse]
	var gets []*client.Future[*clientv3.GetResponse]
	for i := range n {
		puts = append(puts, s.PutAsync("k", fmt.Sprint(i)))
		gets = append(gets, s.GetAsync("k"))
	}
	overtaken := 0
	for i := range n {
		put, err := puts[i].Wait(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 2+i, put.Header.Revision)
		got, err := gets[i].Wait(ctx)
		if errors.Is(err, client.ErrOvertaken) {
			overtaken++
			continue
		}
		require.NoError(t, err)
		require.EqualValues(t, 2+i, got.Kvs[0].ModRevision, "a read reflects the writes before it, and none behind it")
	}
	require.Less(t, overtaken, n/2, "most reads are answered")
	f.mu.Lock()
	defer f.mu.Unlock()
	require.Len(t, f.writes, n)
	for i, w := range f.writes {
		require.EqualValues(t, 2*i+1, w.seq)
	}
	require.Greater(t, len(f.sessions[int64(s.ID())].opens), 5, "it has broken")
}

// TestManyCallers is the same with many goroutines, each of which must see its own
// writes.
func TestManyCallers(t *testing.T) {
	f := newFake(t, 2)
	f.breaks = 0.01
	s := f.session()
	ctx := testContext(t)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			key := fmt.Sprint("/k/", g)
			for i := range 100 {
				_, err := s.Put(ctx, key, fmt.Sprint(i))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := s.Get(ctx, key)
				if err != nil || string(got.Kvs[0].Value) != fmt.Sprint(i) {
					t.Error(got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestExpiry(t *testing.T) {
	f := newFake(t, 1)
	s := f.session()
	ctx := testContext(t)
	w, err := s.Watch(ctx, "k")
	require.NoError(t, err)
	f.set(func() { f.before = func(*stoapb.Request) { time.Sleep(20 * time.Millisecond) } })
	waiting := s.PutAsync("k", "v")
	f.expire(int64(s.ID()))
	<-s.Done()
	require.ErrorIs(t, s.Err(), client.ErrSessionExpired)
	_, err = waiting.Wait(ctx)
	if err != nil {
		require.ErrorIs(t, err, client.ErrSessionExpired)
	}
	_, err = s.Get(ctx, "k")
	require.ErrorIs(t, err, client.ErrSessionExpired)
	for err == nil || errors.Is(err, client.ErrSessionExpired) {
		var n client.Notification
		if n, err = w.Next(ctx); n.Err != nil {
			require.ErrorIs(t, n.Err, client.ErrSessionExpired)
		}
	}
	require.ErrorIs(t, err, client.ErrWatchClosed)
}

// TestSilence: a session expires by its own clock when no member answers.
func TestSilence(t *testing.T) {
	f := newFake(t, 2)
	s := f.session(client.WithTTL(time.Second))
	require.Equal(t, time.Second, s.TTL())
	for _, m := range f.members {
		m.server.Stop()
	}
	select {
	case <-s.Done():
		require.ErrorIs(t, s.Err(), client.ErrSessionExpired)
	case <-time.After(5 * time.Second):
		t.Fatal("it lives on")
	}
}

// TestRefusal: a session with WithRefusal ends when no member accepts
// connections. Requests that it had not sent have no effect.
func TestRefusal(t *testing.T) {
	f := newFake(t, 2)
	ctx := testContext(t)
	c := f.client()
	patient, err := c.Session(ctx)
	require.NoError(t, err)
	s, err := c.Session(ctx, client.WithRefusal(100*time.Millisecond))
	require.NoError(t, err)
	f.set(func() { f.stuck = true })
	sent := s.PutAsync("k", "sent")
	require.Eventually(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.writes) == 1
	}, 20*time.Second, time.Millisecond)
	for _, m := range f.members {
		m.server.Stop()
	}
	require.Eventually(t, func() bool { return s.Member() == 0 }, 20*time.Second, time.Millisecond)
	unsent := s.PutAsync("k", "unsent")
	began := time.Now()
	_, err = unsent.Wait(ctx)
	require.Less(t, time.Since(began), 3*time.Second)
	require.ErrorIs(t, err, client.ErrRefused)
	require.ErrorIs(t, err, client.ErrNotSent)
	_, err = sent.Wait(ctx)
	require.ErrorIs(t, err, client.ErrRefused)
	require.NotErrorIs(t, err, client.ErrNotSent, "whether this one took effect is unknown")
	require.ErrorIs(t, s.Err(), client.ErrRefused)
	_, err = c.Session(ctx, client.WithRefusal(100*time.Millisecond))
	require.ErrorIs(t, err, client.ErrRefused)
	require.NoError(t, patient.Err(), "the others wait")
}

// TestDeadConnection: the session moves to another member when its server is
// connected but silent.
func TestDeadConnection(t *testing.T) {
	t.Parallel()
	f := newFake(t, 1)
	s := f.session(client.WithTTL(8 * time.Second)) // as below
	ctx := testContext(t)
	f.set(func() { f.stuck = true })
	waiting := s.PutAsync("k", "v")
	time.AfterFunc(5*time.Second, func() { f.set(func() { f.stuck = false }) })
	_, err := waiting.Wait(ctx)
	require.NoError(t, err)
	require.Len(t, f.sessions[int64(s.ID())].opens, 2)
}

// TestKeepAlive leaves a session alone for longer than its ttl.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	f := newFake(t, 1)
	s := f.session(client.WithTTL(4 * time.Second)) // more than a loaded machine stands still for
	time.Sleep(6 * time.Second)
	require.NoError(t, s.Err())
	require.Len(t, f.sessions[int64(s.ID())].opens, 1)
}

func TestContextEndsWaitingOnly(t *testing.T) {
	f := newFake(t, 1)
	s := f.session()
	gate := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	f.before = func(*stoapb.Request) { cancel(); <-gate }
	_, err := s.Put(ctx, "k", "v")
	require.ErrorIs(t, err, context.Canceled)
	close(gate)
	got, err := s.Get(testContext(t), "k")
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1, "it took effect all the same, before the read")
}

func TestWindow(t *testing.T) {
	f := newFake(t, 1)
	gate := make(chan struct{})
	f.before = func(*stoapb.Request) { <-gate }
	s, err := f.client(func(c *client.Config) { c.Pending = 4 }).Session(testContext(t))
	require.NoError(t, err)
	for range 4 {
		s.PutAsync("k", "v")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err = s.Put(ctx, "no", "v")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	close(gate)
	_, err = s.Put(testContext(t), "k", "v")
	require.NoError(t, err)
	got, err := s.Get(testContext(t), "no")
	require.NoError(t, err)
	require.Empty(t, got.Kvs, "what found no room was not sent")

	_, err = s.Put(testContext(t), "k", strings.Repeat("x", 2<<20))
	require.ErrorIs(t, err, client.ErrRequestTooLarge)
}

// TestFollowsTheLeader: a session is opened at the leader, and follows leader
// changes.
func TestFollowsTheLeader(t *testing.T) {
	f := newFake(t, 3)
	f.leader = 2
	s := f.session()
	require.EqualValues(t, 2, s.Member())
	ctx := testContext(t)
	f.set(func() { f.leader = 3 })
	f.cut(int64(s.ID()))
	require.Eventually(t, func() bool {
		_, err := s.Put(ctx, "k", "v")
		return err == nil && s.Member() == 3
	}, 20*time.Second, 10*time.Millisecond)

	f.set(func() { f.leader = 1 })
	f.members[2].server.Stop()
	_, err := s.Put(ctx, "k", "v")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.Member() == 1 }, 20*time.Second, 10*time.Millisecond)

	bound, err := f.client().Session(ctx, client.WithEndpoints(f.members[1].addr))
	require.NoError(t, err)
	require.EqualValues(t, 2, bound.Member())
}

// TestMovesToTheLeader: a session moves after a leader change without a broken
// stream.
func TestMovesToTheLeader(t *testing.T) {
	f := newFake(t, 2)
	f.leader = 0 // at first there is none
	s := f.session()
	f.set(func() { f.leader = 3 - s.Member() })
	want := f.leader
	ctx := testContext(t)
	n := 0
	require.Eventually(t, func() bool {
		_, err := s.Put(ctx, "k", "v")
		n++
		return err == nil && s.Member() == want
	}, 20*time.Second, time.Millisecond)
	f.mu.Lock()
	defer f.mu.Unlock()
	require.Len(t, f.writes, n)
}

func TestTaken(t *testing.T) {
	f := newFake(t, 1)
	s := f.session()
	f.set(func() { f.sessions[int64(s.ID())].stream.die(statusAborted) })
	<-s.Done()
	require.ErrorIs(t, s.Err(), client.ErrSessionTaken)
}

func TestLevelsAndTokens(t *testing.T) {
	f := newFake(t, 1)
	ctx := testContext(t)
	c := f.client(func(cfg *client.Config) { cfg.ClientID = "me" })
	s, err := c.Session(ctx, client.WithLevel(client.Causal), client.WithToken(40))
	require.NoError(t, err)
	require.EqualValues(t, 40, s.Token())
	_, _ = s.Get(ctx, "k")
	_, _ = s.At(client.Strict).Get(ctx, "k")
	s.See(50)
	_, _ = s.At(client.Fast).Get(ctx, "k")
	_, _ = s.Get(ctx, "k", clientv3.WithSerializable())
	_, _ = s.Get(ctx, "k", clientv3.WithPrefix())
	_, _ = s.Get(ctx, "k")
	require.EqualValues(t, 50, s.Token())
	f.mu.Lock()
	defer f.mu.Unlock()
	require.EqualValues(t, 40, f.sessions[int64(s.ID())].opens[0].Revision)
	require.Equal(t, "me", f.sessions[int64(s.ID())].client)
	var levels []stoapb.Level
	var revisions []int64
	for _, r := range f.asked {
		levels = append(levels, r.Level)
		revisions = append(revisions, r.Revision)
	}
	require.Equal(t, []stoapb.Level{stoapb.Level_CAUSAL, stoapb.Level_STRICT, stoapb.Level_FAST, stoapb.Level_FAST, stoapb.Level_CAUSAL, stoapb.Level_CAUSAL}, levels)
	require.Equal(t, []int64{0, 0, 0, 0, 50, 0}, revisions)
}

// TestFastIsNotSeen: a fast read doesn't raise the revision that the session
// has seen.
func TestFastIsNotSeen(t *testing.T) {
	f := newFake(t, 1)
	s := f.session()
	_, err := f.session().Put(testContext(t), "k", "v")
	require.NoError(t, err)
	_, err = s.At(client.Fast).Get(testContext(t), "k")
	require.NoError(t, err)
	encoded, err := proto.Marshal(&pb.RangeRequest{Key: []byte("k"), Serializable: true})
	require.NoError(t, err)
	b := s.Batch()
	b.Encoded(stoapb.Kind_RANGE, encoded)
	require.NoError(t, b.Run(testContext(t)))
	require.Zero(t, s.Token())
	_, err = s.At(client.Causal).Get(testContext(t), "k")
	require.NoError(t, err)
	require.EqualValues(t, 2, s.Token())
}

// A cluster at its limit of sessions refuses with that reason, and the client
// doesn't retry.
func TestNoMoreSessions(t *testing.T) {
	f := newFake(t, 3)
	f.set(func() { f.full = true })
	_, err := f.client().Session(testContext(t))
	require.ErrorContains(t, err, "too many sessions: 2 are open")
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
}
