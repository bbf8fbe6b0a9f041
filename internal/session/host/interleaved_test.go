package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/test/interleave"
)

// scene is one server with a session, whose every interleaving is executed. So many workers do what is to be done soon.
type scene struct {
	*story
	w  *interleave.World
	sv *server
	c  *client
}

func newScene(t *testing.T, w *interleave.World, workers int) *scene {
	s := &scene{story: &story{granted: map[int64]bool{}, clients: map[int64]*client{}}, w: w}
	s.world = newWorld(t, 1, Config{RequestTimeout: time.Second, MaxRequestBytes: maxRequestBytes, FlushBytes: 100})
	s.sv = s.servers[0]
	s.elect(s.sv)
	s.c = s.open(s.sv, 0)
	s.quiesce()
	s.said.Reset()
	for p := range partitions {
		w.When(fmt.Sprintf("loop %d", p), func() bool { return s.sv.woken.Has(p) }, func() {
			s.sv.woken &^= placement.Of(p)
			s.sv.state.Replica.Work(p)
		})
	}
	w.When("hub", func() bool { return s.sv.stirred }, func() {
		s.sv.stirred = false
		interleave.Whole(s.sv.hub.Step)
	})
	for i := range workers {
		w.When(fmt.Sprintf("soon %d", i), func() bool { return len(s.sv.soon) > 0 }, func() {
			f := s.sv.soon[0]
			s.sv.soon = s.sv.soon[1:]
			f()
		})
	}
	return s
}

// open opens session 7, that has seen a revision.
func (s *scene) open(sv *server, seen int64) *client {
	c, _ := s.begin(sv, 60, &stoapb.OpenSession{Session: 7, Next: 1, Revision: seen}, nil)
	c.session.Start()
	return c
}

// ask sends requests; they have been taken, or the session has ended.
func (s *scene) ask(c *client, lines ...string) (taken bool) {
	err := c.session.Take(context.Background(), requests(s.t, strings.Join(lines, "\n"), 1), 0)
	if err != nil {
		require.True(s.t, errors.Is(err, fault.Stopped) || c.session.Err() != nil, "%v", err)
	}
	return err == nil
}

// replied is what the client was told, in one line each.
func (s *scene) replied() (all []string) {
	for line := range strings.Lines(s.said.String()) {
		if words, is := strings.CutPrefix(strings.TrimSpace(line), "7 <- "); is && words != "" {
			all = append(all, strings.Split(words, ", ")...)
		}
	}
	return all
}

// prefix checks that replies are the first of those that are wanted: numbers, in order.
func (s *scene) prefix(most int) (n int) {
	for _, word := range s.replied() {
		if strings.HasPrefix(word, "event") {
			continue
		}
		n++
		require.True(s.t, strings.HasPrefix(word, fmt.Sprintf("%d:", n)), s.said.String())
	}
	require.LessOrEqual(s.t, n, most)
	return n
}

// Requests come in two messages while their outcomes arrive: each is replied to, in order, and nothing waits
// in the end.
func TestInterleavedRequests(t *testing.T) {
	interleave.Explore(t, 1, func(w *interleave.World) func() {
		s := newScene(t, w, 1)
		w.Go("client", func() {
			s.ask(s.c, "1 put d 1")
			s.ask(s.c, "2 get d strict", "3 put d 2")
		})
		return func() {
			require.Equal(t, []string{"1: at 2", "2: d=1 at 2", "3: at 3"}, s.replied())
			require.Zero(t, s.c.session.requests)
			require.True(t, s.c.session.in.empty())
		}
	})
}

// A session is drained while requests come: what was taken before is replied to, and then the session ends. What
// comes later is refused, or ends with it.
func TestInterleavedDrain(t *testing.T) {
	interleave.Explore(t, 1, func(w *interleave.World) func() {
		s := newScene(t, w, 2)
		w.Go("client", func() { s.ask(s.c, "1 put d 1", "2 get d causal") })
		w.Go("drain", s.c.session.Drain)
		return func() {
			require.ErrorIs(t, s.c.session.Err(), fault.Stopped)
			require.Contains(t, []int{0, 2}, s.prefix(2))
			require.Empty(t, s.sv.sessions.byID)
			require.Empty(t, s.sv.sessions.lags.list)
		}
	})
}

// A causal read waits for its server, which gets there, while the stream ends: it is answered or ends, and
// no list keeps it.
func TestInterleavedLag(t *testing.T) {
	for name, leaves := range map[string]bool{"the client waits": false, "the client leaves": true} {
		t.Run(name, func(t *testing.T) {
			interleave.Explore(t, 1, func(w *interleave.World) func() {
				s := newScene(t, w, 1)
				c := s.open(s.sv, 2) // which another server has shown
				s.quiesce()
				s.said.Reset()
				w.Go("client", func() { s.ask(c, "1 get d causal") })
				w.Go("other", func() { s.commit(s.sv, command.Put, &pb.PutRequest{Key: []byte("d"), Value: []byte("1")}, false) })
				if leaves {
					w.Go("end", c.session.Close)
				}
				return func() {
					require.Empty(t, s.sv.sessions.lags.list)
					require.Zero(t, s.sv.sessions.lags.count.Load())
					require.Empty(t, s.sv.timers)
					if n := s.prefix(1); !leaves {
						require.Equal(t, 1, n)
						require.Contains(t, s.replied(), "1: d=1 at 2")
					}
				}
			})
		})
	}
}

// Another server's state takes the place of this one's while a causal read comes to wait for it: nobody would end
// that wait.
func TestInterleavedReplacement(t *testing.T) {
	interleave.Explore(t, 1, func(w *interleave.World) func() {
		s := newScene(t, w, 1)
		c := s.open(s.sv, 2)
		s.quiesce()
		s.said.Reset()
		s.sv.another = &newWorld(t, 1, Config{}).servers[0].state // in which nothing happens
		w.Go("client", func() { s.ask(c, "1 get d causal") })
		w.Go("replace", func() {
			s.sv.another = nil
			s.sv.sessions.Replaced()
			s.commit(s.sv, command.Put, &pb.PutRequest{Key: []byte("d"), Value: []byte("1")}, false)
		})
		return func() {
			require.Empty(t, s.sv.sessions.lags.list)
			require.Equal(t, []string{"1: d=1 at 2"}, s.replied())
		}
	})
}

// The session is opened again by another stream, revoked and asked at the same time: the stream before ends, the
// list has the later one or none, and nothing is replied to over a stream that has ended before.
func TestInterleavedTaken(t *testing.T) {
	interleave.Explore(t, 1, func(w *interleave.World) func() {
		s := newScene(t, w, 1)
		var again *client
		w.Go("client", func() { s.ask(s.c, "1 put d 1") })
		w.Go("open", func() { again = s.open(s.sv, 0) })
		w.Go("revoke", func() { s.sv.sessions.Revoked(7) })
		return func() {
			require.Error(t, s.c.session.Err())
			select {
			case <-s.c.session.Done():
			default:
				t.Error("the first one goes on")
			}
			if is := s.sv.sessions.byID[7]; is != nil {
				require.Same(t, again.session, is)
				require.NoError(t, is.Err())
			} else {
				require.Error(t, again.session.Err())
			}
		}
	})
}

// A watch's events come while it is opened and cancelled: none behind the reply to the cancellation.
func TestInterleavedWatch(t *testing.T) {
	interleave.Explore(t, 1, func(w *interleave.World) func() {
		s := newScene(t, w, 1)
		w.Go("client", func() {
			s.ask(s.c, "1 watch d")
			s.ask(s.c, "2 cancel 1")
		})
		w.Go("other", func() { s.commit(s.sv, command.Put, &pb.PutRequest{Key: []byte("d"), Value: []byte("1")}, false) })
		return func() {
			require.Equal(t, 2, s.prefix(2), s.said.String())
			over := false
			for _, word := range s.replied() {
				require.False(t, over && strings.HasPrefix(word, "event"), s.said.String())
				over = over || strings.HasPrefix(word, "2:")
			}
			require.Zero(t, s.sv.hub.Stats().Watchers)
		}
	})
}
