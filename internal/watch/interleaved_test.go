package watch

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/test/interleave"
	"github.com/stoa-kv/stoa/test/interleave/sync"
)

// scene is a hub with two partitions and one stream, whose every interleaving is executed.
type scene struct {
	t       *testing.T
	w       *interleave.World
	hub     *Hub
	journal *journal
	held    sync.Mutex // over the journal, where its stores are replaced
	feed    *Feed
	stream  *Stream
	got     []*pb.WatchResponse
	// compacted is the lowest revision from which on history can be read; under held.
	compacted int64
}

func newScene(t *testing.T, w *interleave.World, o Options) *scene {
	s := &scene{t: t, w: w, journal: newJournal(2)}
	s.hub = NewHub(2, s.read, o)
	s.feed = s.hub.Reset([]int64{1, 1}, 0)
	s.stream = s.hub.NewStream("")
	w.When("hub", func() bool { return len(s.hub.wake) > 0 }, func() {
		<-s.hub.wake
		s.hub.Step()
	})
	w.When("reader", func() bool { return len(s.stream.signal) > 0 }, func() {
		<-s.stream.signal
		s.receive()
	})
	return s
}

func (s *scene) read(p int, key, end []byte, from, to int64, bounds store.Bounds, prev bool) ([]store.Change, int64, error) {
	s.held.Lock()
	defer s.held.Unlock()
	if from < s.compacted {
		return nil, 0, fault.Compacted
	}
	return s.journal.read(p, key, end, from, to, bounds, prev)
}

// receive takes all that is there, as a loop of Recv does.
func (s *scene) receive() {
	for {
		r, ok, err := s.stream.TryRecv()
		if errors.Is(err, ErrClosed) {
			return
		}
		require.NoError(s.t, err)
		if !ok {
			return
		}
		s.got = append(s.got, r.WatchResponse)
	}
}

// publish is what an apply loop does with one revision.
func (s *scene) publish(f *Feed, p int, rev int64) {
	c := put("k", rev, 0)
	s.held.Lock()
	s.journal.add(p, c)
	s.held.Unlock()
	f.Changes(p, rev, []store.Change{c})
}

// past publishes revisions up to the last one in partition 0, before anything is watched.
func (s *scene) past(last int64) {
	for rev := int64(2); rev <= last; rev++ {
		s.publish(s.feed, 0, rev)
	}
	s.feed.Advance(0, last)
	s.feed.Advance(1, last)
	s.hub.Step()
}

// events checks the revisions of a watcher's events, and that nothing announced them before.
func (s *scene) events(id int64, want ...int64) {
	var revs []int64
	at, started := int64(0), false
	for _, r := range s.got {
		switch {
		case r.WatchId != id && r.WatchId != noID:
			continue
		case r.Created:
			started = true
			continue
		case r.WatchId == id:
			require.True(s.t, started, "before the answer to the creation: %v", r)
		}
		require.GreaterOrEqual(s.t, r.Header.Revision, at, "%v", s.got)
		for _, e := range r.Events {
			require.Greater(s.t, e.Kv.ModRevision, at, "%v", s.got)
			revs = append(revs, e.Kv.ModRevision)
		}
		at = r.Header.Revision
	}
	require.Equal(s.t, want, revs, "%v", s.got)
}

// Two loops publish while a watcher is created: it gets all revisions, once, in order, and nothing has
// to come after them for that.
func TestInterleavedPublishing(t *testing.T) {
	for name, start := range map[string]int64{"from a revision": 2, "from now on": 0} {
		t.Run(name, func(t *testing.T) {
			interleave.Explore(t, 2, func(w *interleave.World) func() {
				s := newScene(t, w, Options{})
				w.Go("loop 0", func() {
					s.publish(s.feed, 0, 2)
					s.feed.Advance(0, 3)
				})
				w.Go("loop 1", func() {
					s.publish(s.feed, 1, 3)
					s.feed.Advance(1, 3)
				})
				w.Go("create", func() { s.stream.Create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: start}) })
				return func() {
					require.NotEmpty(t, s.got)
					require.True(t, s.got[0].Created)
					first := start
					if start == 0 {
						first = s.got[0].Header.Revision + 1
					}
					var want []int64
					for rev := max(2, first); rev <= 3; rev++ {
						want = append(want, rev)
					}
					s.events(0, want...)
				}
			})
		})
	}
}

// A client that is held up because too many of its requests aren't answered yet goes on when they are, whoever
// answers them.
func TestInterleavedAdmission(t *testing.T) {
	interleave.Explore(t, 1, func(w *interleave.World) func() {
		s := newScene(t, w, Options{QueueControls: 1})
		const wanted = 2
		created, asked := 0, false
		w.When("client", func() bool { return !asked || len(s.stream.drain) > 0 }, func() {
			if asked {
				<-s.stream.drain
			}
			asked = true
			for created < wanted {
				admits, err := s.stream.admits()
				require.NoError(t, err)
				if !admits {
					return
				}
				s.stream.Create(&pb.WatchCreateRequest{Key: []byte("k")})
				created++
			}
		})
		w.Go("loop 0", func() {
			s.publish(s.feed, 0, 2)
			s.feed.Advance(0, 2)
		})
		w.Go("loop 1", func() { s.feed.Advance(1, 2) })
		return func() { require.Equal(t, wanted, created, "%v", s.got) }
	})
}

// A watcher whose queue is full goes back to history and returns, and progress is requested meanwhile: it comes
// behind all that it covers.
func TestInterleavedBehind(t *testing.T) {
	interleave.Explore(t, 1, func(w *interleave.World) func() {
		s := newScene(t, w, Options{QueueResponses: 1})
		s.stream.Create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2})
		w.Go("loop 0", func() {
			for rev := int64(2); rev <= 4; rev++ {
				s.publish(s.feed, 0, rev)
				s.feed.Advance(0, rev)
			}
		})
		w.Go("loop 1", func() { s.feed.Advance(1, 4) })
		w.Go("progress", s.stream.RequestProgress)
		return func() {
			s.events(0, 2, 3, 4)
			progress := false
			for _, r := range s.got {
				progress = progress || r.WatchId == noID && !r.Created
			}
			require.True(t, progress, "%v", s.got)
		}
	})
}

// One of two watchers is cancelled while events come: it gets none behind the answer, and the other one all.
func TestInterleavedCancel(t *testing.T) {
	interleave.Explore(t, 2, func(w *interleave.World) func() {
		s := newScene(t, w, Options{})
		s.stream.Create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2, WatchId: 1})
		s.stream.Create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2, WatchId: 2})
		w.Go("loop 0", func() {
			s.publish(s.feed, 0, 2)
			s.feed.Advance(0, 2)
		})
		w.Go("loop 1", func() { s.feed.Advance(1, 2) })
		w.Go("cancel", func() { s.stream.Cancel(1) })
		return func() {
			s.events(2, 2)
			gone := false
			for _, r := range s.got {
				require.False(t, gone && r.WatchId == 1, "%v", s.got)
				gone = gone || r.Canceled
			}
			require.True(t, gone)
			require.EqualValues(t, 1, s.hub.Stats().Watchers)
		}
	})
}

// A stream ends while events are delivered to it and one of its watchers reads history.
func TestInterleavedClose(t *testing.T) {
	interleave.Explore(t, 2, func(w *interleave.World) func() {
		s := newScene(t, w, Options{})
		s.past(2)
		s.stream.Create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2}) // from history
		s.stream.Create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: 3})
		w.Go("loop 0", func() {
			s.publish(s.feed, 0, 3)
			s.feed.Advance(0, 3)
			s.feed.Advance(1, 3)
		})
		w.Go("close", s.stream.Close)
		return func() {
			_, _, err := s.stream.TryRecv()
			require.ErrorIs(t, err, ErrClosed)
			require.Zero(t, s.hub.Stats().Watchers)
			require.Zero(t, s.hub.Stats().Slow)
		}
	})
}

// History is compacted while a watcher reads it: it gets all its events, or is cancelled, with no gap before that.
func TestInterleavedCompaction(t *testing.T) {
	interleave.Explore(t, 1, func(w *interleave.World) func() {
		s := newScene(t, w, Options{BatchEvents: 1})
		s.past(4)
		s.stream.Create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2})
		w.Go("compact", func() {
			s.hub.Compacted(4)
			s.held.Lock()
			s.compacted = 4
			s.held.Unlock()
		})
		w.Go("loop 0", func() {
			s.publish(s.feed, 0, 5)
			s.feed.Advance(0, 5)
			s.feed.Advance(1, 5)
		})
		return func() {
			next := int64(2)
			for _, r := range s.got {
				for _, e := range r.Events {
					require.Equal(t, next, e.Kv.ModRevision)
					next++
				}
				if r.Canceled {
					require.Less(t, next, int64(4))
					require.EqualValues(t, 4, r.CompactRevision)
					next = 0
				}
			}
			require.Contains(t, []int64{0, 6}, next)
		}
	})
}

// A snapshot takes one partition back, which comes through the same changes again, while a watcher reads
// history: it gets each revision once, in order.
func TestInterleavedInstall(t *testing.T) {
	interleave.Explore(t, 2, func(w *interleave.World) func() {
		s := newScene(t, w, Options{})
		s.past(3)
		s.stream.Create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2})
		old := s.feed
		w.Go("old server", func() { old.Advance(1, 4) })
		w.Go("install", func() {
			both := func(_, _ []byte) placement.Set { return placement.Of(0) | placement.Of(1) }
			s.held.Lock()
			s.journal.changes[0] = s.journal.changes[0][:1]
			feed := s.hub.Install(both, false, []int64{2, 4}, 0)
			s.held.Unlock()
			s.publish(feed, 0, 3)
			s.publish(feed, 0, 4)
			feed.Advance(0, 4)
			feed.Advance(1, 4)
		})
		return func() { s.events(0, 2, 3, 4) }
	})
}
