package host

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/replica"
)

var stress = flag.Duration("stress", 2*time.Second, "how long the stress test runs")

// Clients send requests of all kinds on many sessions, lose their connections, resume on
// other servers, close sessions and abandon them, while servers lose and regain leadership,
// have their state replaced, are isolated, stop and restart. Each request ends within its
// time, once, in its session's order: it is replied to, or its stream ends. Reads show
// the session's writes before them and no others, ordered watches bring each of its writes
// once, before a reply that reflects it, and a session's ephemeral key ends with it.
func TestStress(t *testing.T) {
	r := newRig(t)
	var world, clients sync.WaitGroup
	for _, s := range r.servers {
		for _, l := range s.links {
			world.Go(l.carry)
		}
	}
	var quiet atomic.Bool
	all := make([]*stressClient, 24)
	for i := range all {
		c := &stressClient{r: r, slow: i%8 == 0}
		all[i] = c
		clients.Go(func() { c.live(&quiet) })
	}
	for begun := time.Now(); time.Since(begun) < *stress; {
		r.trouble()
		r.compact()
	}
	quiet.Store(true)
	clients.Wait()
	r.gone(all)
	r.stop(&world)
	for _, s := range r.servers {
		ss := s.process.Load().sessions
		require.Empty(t, ss.byID, "server %d", s.id)
		require.Empty(t, ss.lags.list, "server %d", s.id)
	}
	n := &r.counts
	t.Logf("%d requests answered, %d of them reads that timed out, %d runs of reads that waited for their server; %d events; %d streams resumed, %d sessions closed, %d leases expired; "+
		"leadership began or ended %d times, %d states replaced, %d servers restarted",
		n.answered.Load(), n.late.Load(), r.sessions.Lagging.Load(), n.events.Load(), n.broken.Load(), n.closed.Load(), n.expired.Load(),
		n.led.Load(), n.replaced.Load(), n.restarted.Load())
	require.Positive(t, n.answered.Load())
	require.Less(t, n.late.Load(), 1+n.answered.Load()/1000, "reads time out")
}

// gone waits until the ephemeral keys of sessions that have ended are deleted everywhere.
func (r *rig) gone(all []*stressClient) {
	for _, c := range all {
		for _, id := range c.ended {
			key := fmt.Appendf(nil, "e%d", id)
			require.Eventually(r.t, func() bool {
				for _, s := range r.servers {
					st := s.process.Load().State()
					kv, _, err := st.Machine.Get(key, st.Machine.Placement().Partition(key), 0, 0)
					if err != nil || kv.Exists() {
						return false
					}
				}
				return true
			}, stressLimit, 5*time.Millisecond, "the ephemeral key of session %d, which has ended", id)
		}
	}
}

// trouble injects one fault, and leaves some time before the next.
func (r *rig) trouble() {
	s := r.servers[rand.IntN(len(r.servers))]
	switch rand.IntN(7) {
	case 0, 1:
		s.process.Load().core.Load().Replica.TransferAll(stressVoters[rand.IntN(3)])
	case 2:
		for range 1 + rand.IntN(3) { // reads wait for the first to catch up when the next one comes
			s.replace()
			time.Sleep(rand.N(200 * time.Microsecond))
		}
	case 3:
		s.restart()
	case 4:
		r.isolate(s, true)
		time.Sleep(time.Duration(rand.IntN(20)) * stressTick)
		r.isolate(s, false)
	case 5:
		l := s.links[stressVoters[rand.IntN(3)]]
		l.cut.Store(true)
		time.Sleep(time.Duration(rand.IntN(3)) * stressTick)
		l.cut.Store(false)
	case 6: // the log refuses puts for a while
		r.alarm(pb.AlarmRequest_ACTIVATE)
		time.Sleep(stressTick)
		r.alarm(pb.AlarmRequest_DEACTIVATE)
	}
	time.Sleep(time.Duration(rand.IntN(10)) * stressTick)
}

// compact drops the history that no watch can still need, so that a state is loaded in
// about the same time at the end of a long run.
func (r *rig) compact() {
	c := r.servers[0].process.Load().core.Load()
	now := reached{time.Now(), c.Replica.Revision()}
	if n := len(r.reached); n == 0 || now.at.Sub(r.reached[n-1].at) > time.Second {
		r.reached = append(r.reached, now)
	}
	if old := r.reached[0]; now.at.Sub(old.at) > stressSilence && now.rev-old.rev > 1000 {
		r.reached = r.reached[1:]
		c.propose(command.Compact, &pb.CompactionRequest{Revision: old.rev}, func(replica.Outcome) {})
	}
}

// reached is a revision and the time when it was reached.
type reached struct {
	at  time.Time
	rev int64
}

// alarm raises or disarms the NOSPACE alarm, and tries until that has worked.
func (r *rig) alarm(action pb.AlarmRequest_AlarmAction) {
	for begun := time.Now(); ; time.Sleep(stressTick) {
		done := make(chan error, 1)
		c := r.servers[rand.IntN(3)].process.Load().core.Load()
		c.propose(command.Alarm, &pb.AlarmRequest{MemberID: 1, Alarm: pb.AlarmType_NOSPACE, Action: action}, func(out replica.Outcome) { done <- out.Err })
		err := <-done
		if err == nil {
			return
		}
		require.Less(r.t, time.Since(begun), stressLimit, "%v", err)
	}
}

// isolate cuts or restores all links of a server.
func (r *rig) isolate(s *rigServer, cut bool) {
	for _, other := range r.servers {
		s.links[other.id].cut.Store(cut)
		other.links[s.id].cut.Store(cut)
	}
}
