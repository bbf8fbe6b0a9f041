package replica

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/raftlog"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/wal"
)

var stress = flag.Duration("stress", time.Second, "how long each stress test runs")

// Three servers with goroutines of their own, as package node gives them: a loop for
// each group, a disk, a clock, a link to each peer. Clients submit, while leadership is
// taken away and comes back, links break, and replicas are put in each other's places.
// Each request is answered once, and in time; what is acknowledged shares its revision
// with nothing, and is seen by each strict read that is begun later.
func TestStress(t *testing.T) {
	// One run shows that requests end without timeouts, the other that timeouts
	// don't answer twice.
	for name, ticks := range map[string]int64{"without timeouts": 1 << 40, "with timeouts": 8} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 3, 10, ticks)
			r.run(*stress, r.trouble)
		})
	}
}

// A server that is alone loses its leadership and comes back hundreds of times a second,
// and requests come at each instant of that.
func TestStressEpochs(t *testing.T) {
	r := newRig(t, 1, 1<<20, 1<<40) // which campaigns on demand
	l := r.servers[0].life.Load()
	until := func(open bool, do func(*group)) {
		for asked := (time.Time{}); l.seq.IsOpen() != open; time.Sleep(20 * time.Microsecond) {
			if time.Since(asked) > time.Millisecond {
				l.groups[rand.IntN(2)].order(do)
				asked = time.Now()
			}
		}
		time.Sleep(rand.N(2 * time.Millisecond))
	}
	// The leader of group 0 campaigns in group 1 when that has a leader that it doesn't hear of, as the
	// one below, once an election timeout, which is as good as never here: so it would lead again once.
	l.lead.mu.Lock()
	l.lead.groups[1].campaigned = 1
	l.lead.mu.Unlock()
	r.run(*stress, func() {
		until(true, campaign)
		until(false, follow(2))
		// All requests that need the epoch were routed to another server, or
		// have failed.
		for begun := time.Now(); l.keeps(); time.Sleep(20 * time.Microsecond) {
			require.Less(t, time.Since(begun), stressLimit, "something waits for the next epoch")
		}
		until(true, campaign)
	})
}

// keeps reports whether anything waits for this server to stamp.
func (l *rigLife) keeps() bool {
	for _, g := range l.groups {
		g.in.mu.Lock()
		writes := len(g.in.writes)
		g.in.mu.Unlock()
		g.wait.mu.Lock()
		reads := len(g.wait.list)
		g.wait.mu.Unlock()
		if writes+reads > 0 {
			return true
		}
	}
	l.multi.mu.Lock()
	defer l.multi.mu.Unlock()
	l.conf.mu.Lock()
	defer l.conf.mu.Unlock()
	return l.multi.count+len(l.conf.next) > 0 || l.conf.current != nil
}

// A command whose execution takes ten election timeouts, on all servers: the
// leader stays the leader, since heartbeats and votes don't wait for it.
func TestALongApplyDoesNotEndAnEpoch(t *testing.T) {
	r := newRig(t, 3, 10, 1<<40)
	r.tick = 30 * time.Millisecond
	r.start()
	put := func() (rev int64) {
		for {
			done := make(chan Outcome, 1)
			w := r.write("a put", []string{"d"}, false, func(error) {})
			acknowledged := w.Done
			w.Done = func(out Outcome) { acknowledged(out); done <- out }
			r.servers[0].life.Load().Submit(w)
			if out := <-done; out.Err == nil {
				return out.Rev
			}
		}
	}
	put()
	terms := func() (all [][]uint64) {
		for _, s := range r.servers {
			all = append(all, s.life.Load().known())
		}
		return all
	}
	require.Eventually(t, func() bool { // a follower may learn of the other group's leader later
		all := terms()
		return slices.Equal(all[0], all[1]) && slices.Equal(all[0], all[2])
	}, stressLimit, r.tick)
	before, changes := terms(), r.counts.losses.Load()
	r.stall.Store(int64(10 * 10 * r.tick))
	begun := time.Now()
	put()
	require.GreaterOrEqual(t, time.Since(begun), 100*r.tick)
	r.stall.Store(0)
	require.Equal(t, before, terms())
	require.Equal(t, changes, r.counts.losses.Load())
	r.stop()
}

// Changes implements apply.Sink.
func (r *rig) Changes(int, int64, []store.Change) { time.Sleep(time.Duration(r.stall.Load())) }

const (
	stressTick  = 4 * time.Millisecond
	stressLimit = 10 * time.Second // in which everything ends, on a slow machine
)

type rig struct {
	t       *testing.T
	tick    time.Duration
	servers []*rigServer
	world   sync.WaitGroup
	stall   atomic.Int64 // of each apply, in nanoseconds
	ended   atomic.Bool
	seen    atomic.Int64 // the highest revision that was acknowledged
	revs    sync.Map     // acknowledged: revision → what
	counts  struct{ done, failed, reads, losses, replaced atomic.Int64 }
}

// rigServer outlives its replicas.
type rigServer struct {
	rig    *rig
	id     uint64
	calls  *Calls
	logs   []*raftlog.Log
	stores []*store.Store
	m      *apply.Machine
	origin uint64

	rebuild sync.Mutex
	life    atomic.Pointer[rigLife]
	links   map[uint64]*rigLink
}

// rigLife is one replica with its goroutines.
type rigLife struct {
	*Replica
	wake []chan struct{}
	halt chan struct{}
	wg   sync.WaitGroup
	disk chan func()
}

// rigLink carries the messages of one server to another, in order.
type rigLink struct {
	from, to *rigServer
	queue    chan func(*Replica)
	cut      atomic.Bool
}

func newRig(t *testing.T, servers, election int, ticks int64) *rig {
	r := &rig{t: t, tick: stressTick}
	voters := []uint64{1, 2, 3}[:servers]
	for _, id := range voters {
		s := &rigServer{rig: r, id: id, calls: NewCalls(), origin: id << 32, links: map[uint64]*rigLink{}}
		m := placement.New(2)
		for p := range 2 {
			s.logs = append(s.logs, raftlog.New(uint32(p), &raftpb.ConfState{Voters: voters}))
			st := store.New(nil)
			st.SetApplied(1, 1)
			s.stores = append(s.stores, st)
		}
		s.m = apply.New(apply.Config{Stores: s.stores, Leases: lease.NewTable(), Placement: m, Sink: r})
		s.m.LoadMembership(membership.OfIDs(voters...), nil)
		r.servers = append(r.servers, s)
	}
	for _, s := range r.servers {
		for _, to := range r.servers {
			s.links[to.id] = &rigLink{from: s, to: to, queue: make(chan func(*Replica), 1024)}
		}
		s.life.Store(s.open(election, ticks))
	}
	return r
}

func (s *rigServer) open(election int, ticks int64) *rigLife {
	l := &rigLife{halt: make(chan struct{}), disk: make(chan func(), 4096)}
	for range s.stores {
		l.wake = append(l.wake, make(chan struct{}, 1))
	}
	s.origin++
	var err error
	l.Replica, err = New(Config{
		ID: s.id, Origin: s.origin, ElectionTicks: election, HeartbeatTicks: 1, RequestTicks: ticks,
		Logs: s.logs, Stores: s.stores, Machine: s.m, Calls: s.calls,
		Network: s, Disk: l,
		Wake: func(p int) {
			select {
			case l.wake[p] <- struct{}{}:
			default:
			}
		},
		Role:   func(uint64) { s.rig.counts.losses.Add(1) },
		Closed: func(int, int64) {},
		Serve:  func(_ uint32, body []byte, reply func([]byte, error)) { reply(body, nil) },
	})
	require.NoError(s.rig.t, err)
	return l
}

// Append implements Disk.
func (l *rigLife) Append(_ int, _ []wal.Record, durable func()) {
	if durable == nil {
		return
	}
	select {
	case l.disk <- durable:
	case <-l.halt:
	}
}

func (l *rigLife) begin() {
	for p := range l.wake {
		l.wg.Go(func() {
			for {
				select {
				case <-l.wake[p]:
					l.Work(p)
				case <-l.halt:
					return
				}
			}
		})
	}
	l.wg.Go(func() {
		for {
			select {
			case durable := <-l.disk:
				durable()
			case <-l.halt:
				return
			}
		}
	})
	l.Start(false)
}

// replace replaces the present replica, as a snapshot does.
func (s *rigServer) replace() {
	s.rebuild.Lock()
	defer s.rebuild.Unlock()
	old := s.life.Load()
	close(old.halt)
	old.wg.Wait()
	l := s.open(old.cfg.ElectionTicks, old.cfg.RequestTicks)
	old.Stop(fault.TimeoutLeaderFail)
	s.life.Store(l)
	l.begin()
	s.rig.counts.replaced.Add(1)
}

// Raft implements Network.
func (s *rigServer) Raft(to uint64, group int, m *raftpb.Message) {
	m = proto.CloneOf(m)
	s.send(to, func(r *Replica) { r.ReceiveRaft(group, m) })
}

// Send implements Network.
func (s *rigServer) Send(to uint64, p Packet) bool {
	return s.send(to, func(r *Replica) { r.Receive(s.id, p) })
}

// Snapshot implements Network. All logs are whole here.
func (s *rigServer) Snapshot(to uint64) { s.rig.t.Errorf("server %d needs a snapshot", to) }

func (s *rigServer) send(to uint64, say func(*Replica)) bool {
	l := s.links[to]
	if l == nil {
		return false
	}
	select {
	case l.queue <- say:
		return true
	default:
		return false
	}
}

// carry delivers until the rig ends. While the link is cut everything is lost,
// which is reported to the sender.
func (l *rigLink) carry() {
	for say := range l.queue {
		if say == nil {
			return
		}
		if l.cut.Load() {
			l.from.life.Load().Unreachable(l.to.id)
			continue
		}
		say(l.to.life.Load().Replica)
	}
}

func (r *rig) start() {
	for _, s := range r.servers {
		s.life.Load().begin()
		for _, l := range s.links {
			r.world.Go(l.carry)
		}
		r.world.Go(func() {
			for !r.ended.Load() {
				s.life.Load().Tick()
				time.Sleep(r.tick)
			}
		})
	}
}

func (r *rig) run(d time.Duration, trouble func()) {
	r.start()
	var clients sync.WaitGroup
	var quiet atomic.Bool
	for i := range 128 {
		clients.Go(func() {
			for n := 0; !quiet.Load(); n++ {
				r.request(fmt.Sprintf("request %d of client %d", n, i))
			}
		})
	}
	for begun := time.Now(); time.Since(begun) < d; {
		trouble()
	}
	quiet.Store(true)
	clients.Wait()
	r.stop()
	c := &r.counts
	r.t.Logf("%d requests done, %d failed, %d reads; leadership began or ended %d times, %d replicas replaced",
		c.done.Load(), c.failed.Load(), c.reads.Load(), c.losses.Load(), c.replaced.Load())
	require.Positive(r.t, c.done.Load())
}

func (r *rig) stop() {
	for _, s := range r.servers {
		s.calls.Stop(fault.Stopped)
		l := s.life.Load()
		close(l.halt)
		l.wg.Wait()
		l.Stop(fault.Stopped)
	}
	r.ended.Store(true)
	for _, s := range r.servers {
		for _, l := range s.links {
			l.queue <- nil
		}
	}
	r.world.Wait()
	for _, s := range r.servers {
		s.nothingWaits()
	}
}

func (s *rigServer) nothingWaits() {
	l, t := s.life.Load(), s.rig.t
	for p, g := range l.groups {
		require.Zero(t, g.pending.Load(), "group %d of server %d", p, s.id)
		require.Empty(t, g.in.writes)
		require.Empty(t, g.wait.list)
	}
	require.Zero(t, l.multi.count)
	require.Empty(t, s.calls.parked)
	require.Empty(t, s.calls.calls)
}

// trouble is one fault, and the time to recover from it.
func (r *rig) trouble() {
	s := r.servers[rand.IntN(len(r.servers))]
	switch rand.IntN(5) {
	case 0:
		s.life.Load().TransferAll(uint64(1 + rand.IntN(3)))
	case 1:
		s.replace()
	case 2: // a leader that is partitioned
		for _, other := range r.servers {
			s.links[other.id].cut.Store(true)
			other.links[s.id].cut.Store(true)
		}
		time.Sleep(time.Duration(rand.IntN(20)) * stressTick)
		for _, other := range r.servers {
			s.links[other.id].cut.Store(false)
			other.links[s.id].cut.Store(false)
		}
	case 3:
		l := s.life.Load()
		l.groups[rand.IntN(2)].order(func(g *group) { _ = g.node.Campaign() })
	case 4:
		l := s.links[uint64(1+rand.IntN(3))]
		l.cut.Store(true)
		time.Sleep(time.Duration(rand.IntN(3)) * stressTick)
		l.cut.Store(false)
	}
	time.Sleep(time.Duration(rand.IntN(10)) * stressTick)
}

// request makes one request at any server and waits for its end.
func (r *rig) request(what string) {
	s := r.servers[rand.IntN(len(r.servers))]
	l := s.life.Load()
	var answered atomic.Int32
	ended := make(chan error, 2)
	end := func(err error) {
		if answered.Add(1) > 1 {
			r.t.Errorf("%s is answered twice", what)
		}
		ended <- err
	}
	floor := r.seen.Load()
	kind := rand.IntN(5)
	switch kind {
	case 0, 1:
		l.Submit(r.write(what, []string{"d", "a"}[kind:kind+1], false, end))
	case 2:
		l.Submit(r.write(what, []string{"d", "a"}, false, end))
	case 3:
		l.SubmitRun([]*Write{r.write(what, []string{"d"}, true, end)})
	case 4:
		parts := placement.Set(1 + rand.IntN(3))
		l.ReadPoint(parts, func(err error) {
			if err == nil {
				r.counts.reads.Add(1)
				for p := range parts.Each() {
					st := s.stores[p]
					st.RLock()
					if rev := l.Visible(p); rev < floor {
						r.t.Errorf("%s shows revision %d, after %d was acknowledged", what, rev, floor)
					}
					st.RUnlock()
				}
			}
			end(err)
		})
	}
	select {
	case err := <-ended:
		if err != nil {
			r.counts.failed.Add(1)
			time.Sleep(time.Millisecond)
		}
		r.counts.done.Add(1)
	case <-time.After(stressLimit):
		r.t.Errorf("%s at server %d (kind %d) has not ended", what, s.id, kind)
	}
}

func (r *rig) write(what string, keys []string, session bool, end func(error)) *Write {
	txn := &pb.TxnRequest{}
	var parts placement.Set
	m := r.servers[0].m.Placement()
	for _, k := range keys {
		parts |= placement.Of(m.Partition([]byte(k)))
		txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{
			RequestPut: &pb.PutRequest{Key: []byte(k), Value: binary.AppendUvarint(nil, rand.Uint64())},
		}})
	}
	body, err := proto.Marshal(txn)
	require.NoError(r.t, err)
	return &Write{
		Command: command.Command{Kind: command.Txn, Body: body}, Parts: parts, Home: int32(parts.First()), Session: session,
		Done: func(out Outcome) {
			if out.Err == nil {
				r.acknowledged(what, out.Rev)
			}
			end(out.Err)
		},
	}
}

func (r *rig) acknowledged(what string, rev int64) {
	if other, twice := r.revs.LoadOrStore(rev, what); twice {
		r.t.Errorf("%s and %s share revision %d", what, other, rev)
	}
	for {
		old := r.seen.Load()
		if rev <= old || r.seen.CompareAndSwap(old, rev) {
			return
		}
	}
}
