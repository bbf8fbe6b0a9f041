package compat

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// next waits for one response of a watch.
func next(t *testing.T, w clientv3.WatchChan) clientv3.WatchResponse {
	t.Helper()
	select {
	case r, ok := <-w:
		require.True(t, ok, "the watch has ended")
		return r
	case <-time.After(time.Minute):
		require.FailNow(t, "nothing from the watch")
		panic("unreachable")
	}
}

// collect reads n events and checks on the way that revisions never go back.
func collect(t *testing.T, w clientv3.WatchChan, n int) []*clientv3.Event {
	t.Helper()
	var evs []*clientv3.Event
	for last := int64(0); len(evs) < n; {
		r := next(t, w)
		require.NoError(t, r.Err())
		for _, ev := range r.Events {
			require.GreaterOrEqual(t, ev.Kv.ModRevision, last)
			require.LessOrEqual(t, ev.Kv.ModRevision, r.Header.Revision)
			last = ev.Kv.ModRevision
		}
		evs = append(evs, r.Events...)
	}
	require.Len(t, evs, n)
	return evs
}

func TestWatchFromNowAndFromThePast(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		keys, revs := e.fill(3)
		past := e.cli.Watch(e.ctx, e.root, clientv3.WithPrefix(), clientv3.WithRev(revs[4]))
		for i, ev := range collect(t, past, len(keys)-4) {
			require.Equal(t, keys[i+4], string(ev.Kv.Key))
			require.Equal(t, revs[i+4], ev.Kv.ModRevision)
			require.True(t, ev.IsCreate())
		}

		now := e.cli.Watch(e.ctx, e.root, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
		require.True(t, next(t, now).Created)
		one := e.cli.Watch(e.ctx, keys[5], clientv3.WithCreatedNotify())
		require.True(t, next(t, one).Created)
		for i := range 20 {
			e.put(keys[i%len(keys)], fmt.Sprint(i))
		}
		live, caughtUp := collect(t, now, 20), collect(t, past, 20)
		for i := range 20 {
			require.Equal(t, fmt.Sprint(i), string(live[i].Kv.Value), "over all partitions in revision order")
			require.Equal(t, fmt.Sprint(i), string(caughtUp[i].Kv.Value), "the one from the past goes on")
		}
		ev := collect(t, one, 1)[0]
		require.Equal(t, "5", string(ev.Kv.Value))
		require.True(t, ev.IsModify())
	})
}

func TestWatchFromTheFuture(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		rev := e.put(e.key("a", 0), "now")
		w := e.cli.Watch(e.ctx, e.root, clientv3.WithPrefix(), clientv3.WithRev(rev+4), clientv3.WithCreatedNotify())
		require.True(t, next(t, w).Created)
		for i := range 6 {
			e.put(e.key(dirs[i], 0), fmt.Sprint(i))
		}
		evs := collect(t, w, 3)
		require.Equal(t, "3", string(evs[0].Kv.Value))
	})
}

func TestWatchPrevKVAndFilters(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		rev := e.put(e.key("a", 0), "one")
		e.put(e.key("a", 0), "two")
		_, err := e.cli.Delete(e.ctx, e.key("a", 0))
		require.NoError(t, err)
		e.put(e.key("b", 0), "other")

		opts := func(more ...clientv3.OpOption) []clientv3.OpOption {
			return append([]clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(rev), clientv3.WithPrevKV()}, more...)
		}
		evs := collect(t, e.cli.Watch(e.ctx, e.root, opts()...), 4)
		require.Nil(t, evs[0].PrevKv)
		require.Equal(t, "one", string(evs[1].PrevKv.Value))
		require.Equal(t, clientv3.EventTypeDelete, evs[2].Type)
		require.Equal(t, "two", string(evs[2].PrevKv.Value))
		require.Empty(t, evs[2].Kv.Value)
		require.Zero(t, evs[2].Kv.CreateRevision)
		require.Nil(t, evs[3].PrevKv)

		dels := collect(t, e.cli.Watch(e.ctx, e.root, opts(clientv3.WithFilterPut())...), 1)
		require.Equal(t, clientv3.EventTypeDelete, dels[0].Type)
		puts := collect(t, e.cli.Watch(e.ctx, e.root, opts(clientv3.WithFilterDelete())...), 3)
		require.Equal(t, "other", string(puts[2].Kv.Value))
	})
}

func TestWatchDeliversARevisionInOneResponse(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		rev := e.put(e.key("a", 0), "start")
		live := e.cli.Watch(e.ctx, e.root, clientv3.WithPrefix(), clientv3.WithRev(rev+1), clientv3.WithCreatedNotify())
		require.True(t, next(t, live).Created)
		var ops []clientv3.Op
		for i := range 4 {
			for _, d := range dirs {
				ops = append(ops, clientv3.OpPut(e.key(d, i), "txn"))
			}
		}
		resp, err := e.cli.Txn(e.ctx).Then(ops...).Commit()
		require.NoError(t, err)
		for name, w := range map[string]clientv3.WatchChan{
			"live": live, "past": e.cli.Watch(e.ctx, e.root, clientv3.WithPrefix(), clientv3.WithRev(rev+1)),
		} {
			got := next(t, w)
			require.Len(t, got.Events, len(ops), name)
			for i, ev := range got.Events {
				require.Equal(t, resp.Header.Revision, ev.Kv.ModRevision, name)
				require.Equal(t, e.key(dirs[i%len(dirs)], i/len(dirs)), string(ev.Kv.Key), "%s: in the order of the operations", name)
			}
		}
	})
}

func TestWatchOfTheWholeKeySpaceAndOfKeys(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		rev := e.put(e.key("a", 0), "0")
		all := e.cli.Watch(e.ctx, "", clientv3.WithPrefix(), clientv3.WithRev(rev))
		from := e.cli.Watch(e.ctx, e.root, clientv3.WithFromKey(), clientv3.WithRev(rev))
		part := e.cli.Watch(e.ctx, e.key("c", 0), clientv3.WithRange(e.key("e", 0)), clientv3.WithRev(rev))
		for _, d := range dirs {
			e.put(e.key(d, 0), "1")
		}
		require.Equal(t, e.key("h", 0), string(collect(t, all, 9)[8].Kv.Key))
		require.Equal(t, e.key("h", 0), string(collect(t, from, 9)[8].Kv.Key))
		require.Equal(t, e.key("d", 0), string(collect(t, part, 2)[1].Kv.Key))
	})
}

func TestWatchStreamControl(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		s := e.watchStream(0)
		k := []byte(e.key("a", 0))
		created := s.create(&pb.WatchCreateRequest{Key: k})
		require.Zero(t, created.WatchId, "ids are given from 0 on")
		require.EqualValues(t, 7, s.create(&pb.WatchCreateRequest{Key: k, WatchId: 7}).WatchId)
		require.EqualValues(t, 1, s.create(&pb.WatchCreateRequest{Key: k}).WatchId)

		dup := s.create(&pb.WatchCreateRequest{Key: k, WatchId: 7})
		require.True(t, dup.Canceled)
		require.EqualValues(t, -1, dup.WatchId)
		require.NotEmpty(t, dup.CancelReason)

		empty := s.create(&pb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("a")})
		require.True(t, empty.Canceled)
		require.EqualValues(t, -1, empty.WatchId)
		negative := s.create(&pb.WatchCreateRequest{Key: k, StartRevision: -1})
		require.True(t, negative.Canceled)
		require.Equal(t, rpctypes.ErrCompacted.Error(), negative.CancelReason)

		e.put(string(k), "v")
		seen := map[int64]bool{}
		for range 3 {
			r := s.recv()
			require.Len(t, r.Events, 1)
			seen[r.WatchId] = true
		}
		require.Equal(t, map[int64]bool{0: true, 1: true, 7: true}, seen)

		s.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: 7}}})
		r := s.recv()
		require.True(t, r.Canceled)
		require.EqualValues(t, 7, r.WatchId)
		require.Zero(t, r.CompactRevision)
		// Neither an unknown id nor a request that says nothing ends the stream.
		s.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: 99}}})
		s.send(&pb.WatchRequest{})
		e.put(string(k), "w")
		require.Len(t, s.recv().Events, 1)
	})
}

func TestWatchProgress(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		for i := range e.Servers {
			s := e.watchStream(i)
			s.create(&pb.WatchCreateRequest{Key: []byte(e.root + "a/"), RangeEnd: []byte(e.root + "a0")})
			s.create(&pb.WatchCreateRequest{Key: []byte(e.root + "b/"), RangeEnd: []byte(e.root + "b0")})
			// The write lies in a partition that may be neither watcher's: an idle
			// watch must learn of its revision without any write of its own.
			rev := e.put(e.key("h", i), "elsewhere")
			s.progressThrough(rev)
			rev = e.put(e.key("a", i), "here")
			r := s.recv()
			require.Len(t, r.Events, 1, "server %d: %v", i, r)
			require.Equal(t, rev, r.Events[0].Kv.ModRevision)
			s.progressThrough(rev)
		}
	})
}

func TestWatchFragments(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		// A lease's end is one revision, however large: with the previous values it is
		// more than a response may hold.
		l, err := e.cli.Grant(e.ctx, 600)
		require.NoError(t, err)
		const n = 6
		for i := range n {
			_, err := e.cli.Put(e.ctx, e.key(dirs[i], 0), strings.Repeat("x", 600<<10), clientv3.WithLease(l.ID))
			require.NoError(t, err)
		}
		rev := e.get(e.root).Header.Revision
		_, err = e.cli.Revoke(e.ctx, l.ID)
		require.NoError(t, err)

		s := e.watchStream(0)
		s.create(&pb.WatchCreateRequest{Key: []byte(e.root), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(e.root)),
			StartRevision: rev + 1, PrevKv: true, Fragment: true})
		var evs []*mvccpb.Event
		pieces := 0
		for len(evs) < n {
			r := s.recv()
			evs = append(evs, r.Events...)
			pieces++
			require.Equal(t, len(evs) < n, r.Fragment, "all but the last are marked")
		}
		require.Greater(t, pieces, 1)
		require.Len(t, evs, n)

		// The same through etcd's client, which puts the pieces together again,
		// and without fragments.
		for _, opts := range [][]clientv3.OpOption{{clientv3.WithFragment()}, nil} {
			opts = append(opts, clientv3.WithPrefix(), clientv3.WithRev(rev+1), clientv3.WithPrevKV())
			got := next(t, e.cli.Watch(e.ctx, e.root, opts...))
			require.Len(t, got.Events, n)
			require.Len(t, got.Events[n-1].PrevKv.Value, 600<<10)
		}
	})
}

func TestSlowWatcherDoesNotDelayOthers(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		// Never read until the end: its window fills and the server has to hold back.
		slow := e.watchStream(0)
		slow.create(&pb.WatchCreateRequest{Key: []byte(e.root), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(e.root))})
		fast := e.cli.Watch(e.ctx, e.root, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
		require.True(t, next(t, fast).Created)

		const writes = 200
		value := strings.Repeat("x", 16<<10)
		for i := range writes {
			e.put(e.key(dirs[i%len(dirs)], i), value)
		}
		collect(t, fast, writes)
		n, last := 0, int64(0)
		for n < writes {
			for _, ev := range slow.recv().Events {
				require.Greater(t, ev.Kv.ModRevision, last)
				last = ev.Kv.ModRevision
				n++
			}
		}
		require.Equal(t, writes, n)
	})
}

func TestManyWatchersOnOneStream(t *testing.T) {
	matrix(t, func(t *testing.T, e *env) {
		const each = 25
		var chans []clientv3.WatchChan
		for i := range each {
			for _, d := range dirs {
				chans = append(chans, e.cli.Watch(e.ctx, e.key(d, i), clientv3.WithCreatedNotify()))
			}
		}
		for _, w := range chans {
			require.True(t, next(t, w).Created)
		}
		keys, revs := e.fill(each)
		for i, w := range chans {
			ev := collect(t, w, 1)[0]
			require.Equal(t, keys[i], string(ev.Kv.Key))
			require.Equal(t, revs[i], ev.Kv.ModRevision)
		}
	})
}

// wstream is a raw watch stream: etcd's client hides ids, order and control responses.
type wstream struct {
	t      *testing.T
	stream pb.Watch_WatchClient
	in     chan *pb.WatchResponse
}

func (e *env) watchStream(server int) *wstream {
	e.t.Helper()
	ctx, cancel := context.WithCancel(e.ctx)
	e.t.Cleanup(cancel)
	stream, err := pb.NewWatchClient(e.dial(server)).Watch(ctx)
	require.NoError(e.t, err)
	s := &wstream{t: e.t, stream: stream, in: make(chan *pb.WatchResponse)}
	go func() {
		defer close(s.in)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case s.in <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	return s
}

func (s *wstream) send(r *pb.WatchRequest) {
	s.t.Helper()
	require.NoError(s.t, s.stream.Send(r))
}

func (s *wstream) recv() *pb.WatchResponse {
	s.t.Helper()
	select {
	case r, ok := <-s.in:
		require.True(s.t, ok, "the stream has ended")
		return r
	case <-time.After(time.Minute):
		require.FailNow(s.t, "nothing on the stream")
		panic("unreachable")
	}
}

func (s *wstream) create(r *pb.WatchCreateRequest) *pb.WatchResponse {
	s.t.Helper()
	s.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}})
	resp := s.recv()
	require.True(s.t, resp.Created, "%v", resp)
	return resp
}

// progressThrough asks for progress until a notification reaches rev.
func (s *wstream) progressThrough(rev int64) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		s.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
		// A server some of whose watchers are behind may leave a request
		// unanswered.
		select {
		case r := <-s.in:
			require.Empty(s.t, r.Events)
			require.EqualValues(s.t, -1, r.WatchId)
			if r.Header.Revision >= rev {
				return
			}
		case <-time.After(100 * time.Millisecond):
		}
	}
	require.FailNow(s.t, "no progress", "through revision %d", rev)
}
