package replica

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A group that follows waits at a rendezvous which another one executes, for long. Its Raft is stepped meanwhile.
func TestRaftIsSteppedBesideALongRendezvous(t *testing.T) {
	s := leading(t, 3)
	leader, r := s.replicas[0], s.replicas[1]
	g, st := r.groups[0], s.stores[1][0]
	s.put(leader, "d")
	s.work(leader, -1)
	s.put(leader, "both")
	for range 5 {
		s.work(leader, -1)
		s.carry(true, 1, 3, -1)
		s.work(s.replicas[2], -1)
		s.carry(true, 3, 1, -1)
	}
	s.carry(true, 1, 2, 0) // group 1 lacks the second one

	taken, held, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
	r.cfg.Machine.Sink = changes(func(int64) {
		go func() { // the other group, which has come to it as the last
			g.mu.Lock()
			close(taken)
			st.Lock()
			close(held)
			g.mu.Unlock()
			<-release
			st.Unlock()
		}()
		<-taken
	})
	worked := make(chan struct{})
	go func() {
		for range 3 {
			r.Work(0)
		}
		close(worked)
	}()
	<-held
	defer func() {
		close(release)
		<-worked
		require.True(t, g.blocked)
	}()
	require.Eventually(t, func() bool {
		r.Tick()
		g.in.mu.Lock()
		defer g.in.mu.Unlock()
		return g.in.ticks == 0
	}, 5*time.Second, 10*time.Millisecond)
}
