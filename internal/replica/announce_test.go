package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/fault"
)

// An announcement is done when all other servers, whether they lead or not, are prepared.
func TestAnAnnouncementWaitsForAllServers(t *testing.T) {
	s := newStory(t, 3)
	s.elect(s.replicas[0])
	var ready [2]func()
	for i := range ready {
		s.replicas[i].cfg.Announced = func(body []byte, answer func()) {
			require.Equal(t, "source", string(body))
			ready[i] = answer
		}
	}
	done := 0
	s.replicas[2].Announce([]byte("source"), func(missing int) { done++; require.Zero(t, missing) })
	s.quiesce()
	require.NotNil(t, ready[0])
	ready[1]()
	s.quiesce()
	require.Zero(t, done)
	ready[0]()
	s.quiesce()
	require.Equal(t, 1, done)
	require.Empty(t, s.replicas[2].calls.calls)
}

// It is done, too, when a server can't be reached any more, doesn't answer in time, or
// stops, and isn't made again at another leader.
func TestAnAnnouncementDoesNotWaitForServersThatFail(t *testing.T) {
	for name, fails := range map[string]func(r *Replica){
		"the link breaks": func(r *Replica) {
			r.Unreachable(1)
			r.Unreachable(2)
		},
		"no answer": func(r *Replica) {
			for range announceTicks {
				r.Tick()
			}
		},
		"an answer of a server that doesn't know announcements": func(r *Replica) {
			for id := range r.calls.calls {
				r.Receive(1, Packet{Reply: &Reply{ID: id, Err: fault.NotLeader}})
			}
		},
		"it stops": func(r *Replica) { r.calls.Stop(fault.Stopped) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t, 3)
			done := 0
			r := s.replicas[2]
			r.Announce([]byte("source"), func(missing int) { done++; require.Equal(t, 2, missing) })
			require.Zero(t, done)
			fails(r)
			require.Equal(t, 1, done)
			require.Empty(t, r.calls.calls)
			require.Empty(t, r.calls.parked)
		})
	}
}

// A leader change doesn't concern it.
func TestAnAnnouncementOutlivesALeaderChange(t *testing.T) {
	s := newStory(t, 3)
	done := 0
	s.replicas[2].Announce([]byte("source"), func(int) { done++ })
	s.elect(s.replicas[1])
	s.quiesce()
	require.Equal(t, 1, done)
}

// A single server needs no answers.
func TestAnAnnouncementOfASingleServer(t *testing.T) {
	done := 0
	newStory(t, 1).replicas[0].Announce(nil, func(int) { done++ })
	require.Equal(t, 1, done)
}
