package host

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/raftlog"
	"github.com/stoa-kv/stoa/internal/recovery"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/rpc"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/version"
	"github.com/stoa-kv/stoa/internal/watch"
)

// rig is three servers with the goroutines that package node starts: a loop for each
// group, a log writer, a ticker, a hub, a link to each peer. Files and connections are in
// memory.
type rig struct {
	t        *testing.T
	nth      uint64 // of several
	servers  []*rigServer
	tick     time.Duration
	pause    time.Duration // between two steps of a hub, at most
	latency  time.Duration // of links
	level    version.Level // of the cluster
	applied  func(c *rigCore, partition int, rev int64, changes []store.Change)
	ruled    func(now *auth.State) // a server has come to other users or rights; all its stores are locked
	options  rpc.Options           // of the services
	lenient  bool                  // all may watch and compact, whatever their rights
	shut     atomic.Bool           // to new connections of clients
	nextID   atomic.Int64          // of sessions
	reached  []reached             // oldest first
	sessions Counts                // of all servers
	counts   struct{ answered, late, broken, expired, closed, led, replaced, restarted, resized, installed, events atomic.Int64 }
}

// rigServer is a server, over its restarts.
type rigServer struct {
	rig    *rig
	id     uint64
	groups *membership.Groups // whose logs they are
	logs   []*raftlog.Log

	rebuild turn
	process atomic.Pointer[rigProcess]
	links   map[uint64]*rigLink
}

// rigLink carries messages from one server to another, in order.
type rigLink struct {
	from, to *rigServer
	queue    chan func(*replica.Replica) // nil ends it
	cut      atomic.Bool
}

// turn is a lock that is held while time passes: a bubble of synctest doesn't take waiting for a
// sync.Mutex for that.
type turn chan struct{}

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }

const (
	stressTick    = 4 * time.Millisecond
	stressTimeout = 2 * time.Second   // of a request, on the server
	stressSilence = 5 * stressTimeout // in which a stream replies or ends; a slow machine's several steps
	stressLimit   = time.Minute       // in which a request is replied to, over all streams
	stressMethod  = replica.MethodFirstFree
)

var (
	stressVoters = []uint64{1, 2, 3}
	stressOrigin atomic.Uint64
	noSpace      = &pb.AlarmMember{MemberID: 1, Alarm: pb.AlarmType_NOSPACE}
)

func newRig(t *testing.T) *rig {
	r := &rig{
		t: t, tick: stressTick, pause: 200 * time.Microsecond, level: version.Oldest,
		applied: func(*rigCore, int, int64, []store.Change) {}, ruled: func(*auth.State) {},
	}
	r.start()
	return r
}

// start starts the servers.
func (r *rig) start() {
	t := r.t
	for _, id := range stressVoters {
		config := membership.Initial(membership.OfIDs(stressVoters...))
		s := &rigServer{rig: r, id: id, groups: membership.FirstGroups(partitions), links: map[uint64]*rigLink{}, rebuild: make(turn, 1)}
		s.logs = recovery.NewLogs(s.groups, slices.Repeat([]*membership.Config{config}, partitions))
		for _, l := range s.logs {
			_, err := l.Recover(raftlog.Bootstrap)
			require.NoError(t, err)
		}
		r.servers = append(r.servers, s)
	}
	for _, s := range r.servers {
		for _, to := range r.servers {
			s.links[to.id] = &rigLink{from: s, to: to, queue: make(chan func(*replica.Replica), 1024)}
		}
		s.start(backend.NewMem(s.identity()))
	}
}

func (s *rigServer) identity() backend.Identity {
	return backend.Identity{Cluster: 77 + s.rig.nth, Server: s.id, Partitions: partitions}
}

// start starts a process.
func (s *rigServer) start(file *backend.Backend) {
	p := &rigProcess{s: s, calls: replica.NewCalls(), expirer: lease.NewExpirer(), halt: make(chan struct{})}
	p.sessions = New(p, Config{RequestTimeout: stressTimeout, FlushBytes: 20, MergeBytes: 4 << 10, Counts: &s.rig.sessions})
	c := p.load(file, nil)
	p.hub = watch.NewHub(len(c.Stores), p.history, watch.Options{
		Parts: c.placed.Wide, Moving: c.placed.Transit() != nil, RecentRevisions: 64, QueueResponses: 16, BatchEvents: 20,
	})
	c.feed = p.hub.Reset(recovery.Published(c.Stores))
	c.permit(c.Machine.Auth())
	p.core.Store(c)
	s.process.Store(p)
	c.begin(false)
	p.every(s.rig.tick, func() { p.core.Load().Replica.Tick() })
	p.every(5*s.rig.tick, p.expire)
	p.every(s.rig.tick, func() { p.core.Load().moveOn() })
	p.every(7*s.rig.tick, func() {
		s.rebuild.Lock()
		defer s.rebuild.Unlock()
		if !p.down.Load() { // else the file is another process's
			p.core.Load().flush()
		}
	})
	p.wg.Go(func() {
		for !p.down.Load() {
			p.hub.Step()
			time.Sleep(rand.N(s.rig.pause))
		}
	})
}

// replace does what the installation of a snapshot does: the state is loaded from the
// file and takes the place of the one before. Here the file is the server's own, so the new
// state is behind the old one until the log has been applied again, which is harder for
// sessions than a leader's snapshot, which is ahead.
func (s *rigServer) replace() {
	s.rebuild.Lock()
	defer s.rebuild.Unlock()
	p := s.process.Load()
	old := p.core.Load()
	old.end()
	p.succeed(old, p.load(old.file, nil), false)
	s.rig.counts.replaced.Add(1)
}

// succeed puts a core in the place of another, which has ended.
func (p *rigProcess) succeed(old, c *rigCore, led bool) {
	old.Replica.Stop(fault.TimeoutLeaderFail)
	published, compacted := recovery.Published(c.Stores)
	c.feed = p.hub.Install(c.placed.Wide, c.placed.Transit() != nil, published, compacted)
	c.permit(c.Machine.Auth())
	p.core.Store(c)
	p.sessions.Replaced()
	c.begin(led)
}

// restart stops the process and starts another from its file.
func (s *rigServer) restart() {
	s.rebuild.Lock()
	defer s.rebuild.Unlock()
	old := s.process.Load()
	old.stop()
	s.start(old.core.Load().file)
	s.rig.counts.restarted.Add(1)
}

// carry delivers until the rig ends. While the link is cut messages are lost, which
// is reported to the sender.
func (l *rigLink) carry() {
	for deliver := range l.queue {
		if deliver == nil {
			return
		}
		if d := l.from.rig.latency; d > 0 {
			time.Sleep(d)
		}
		if l.cut.Load() || l.to.process.Load().down.Load() {
			l.from.process.Load().core.Load().Replica.Unreachable(l.to.id)
			continue
		}
		deliver(l.to.process.Load().core.Load().Replica)
	}
}

// stop ends everything.
func (r *rig) stop(world *sync.WaitGroup) {
	for _, s := range r.servers {
		s.rebuild.Lock()
		p := s.process.Load()
		p.stop()
		s.rebuild.Unlock()
		p.wg.Wait()
	}
	for _, s := range r.servers {
		for _, l := range s.links {
			l.queue <- nil
		}
	}
	world.Wait()
}

// rigProcess is one process of a server: the Server of its sessions.
type rigProcess struct {
	s        *rigServer
	calls    *replica.Calls
	hub      *watch.Hub
	sessions *Sessions
	expirer  *lease.Expirer
	sending  sync.Map // a peer: its snapshot is on its way
	core     atomic.Pointer[rigCore]
	down     atomic.Bool
	halt     chan struct{}
	wg       sync.WaitGroup
}

func (p *rigProcess) every(d time.Duration, do func()) {
	p.wg.Go(func() {
		ticker := time.NewTicker(d)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				do()
			case <-p.halt:
				return
			}
		}
	})
}

// stop is what Node.Stop does, once the services have drained the sessions.
func (p *rigProcess) stop() {
	p.down.Store(true)
	p.sessions.mu.Lock()
	var all []*Session
	for _, s := range p.sessions.byID {
		all = append(all, s)
	}
	p.sessions.mu.Unlock()
	for _, s := range all {
		s.Drain()
	}
	time.Sleep(rand.N(10 * time.Millisecond))
	for _, s := range all {
		s.Close()
	}
	close(p.halt)
	c := p.core.Load()
	p.calls.Stop(fault.Stopped)
	c.end()
	c.Replica.Stop(fault.Stopped)
}

// expire revokes what has run out, on the leader.
func (p *rigProcess) expire() {
	c := p.core.Load()
	if !c.Replica.Leading() {
		return
	}
	for _, over := range p.expirer.Due(time.Now(), 100) {
		c.propose(command.LeaseRevoke, apply.Revocation(over), func(out replica.Outcome) {
			if out.Err == nil {
				p.s.rig.counts.expired.Add(1)
			}
		})
	}
}

// renewed has the leader renew the lease of a session as a user, and waits.
func (p *rigProcess) renewed(ctx context.Context, id int64, user uint64) (ttl int64, err error) {
	return p.renewedBy(ctx, id, apply.Renewer{User: user, Session: true})
}

func (p *rigProcess) renewedBy(ctx context.Context, id int64, who apply.Renewer) (ttl int64, err error) {
	answer, err := p.callLeader(ctx, stressMethod, who.AppendTo(binary.AppendVarint(nil, id)), (*rigCore).renew)
	ttl, _ = binary.Varint(answer)
	return ttl, err
}

// callLeader has a call answered by the leader, which may be this server.
func (p *rigProcess) callLeader(ctx context.Context, method uint32, body []byte, serve func(c *rigCore, body []byte, reply func([]byte, error))) ([]byte, error) {
	for begun := time.Now(); time.Since(begun) < stressTimeout && !p.down.Load(); time.Sleep(time.Millisecond) {
		type answer struct {
			body []byte
			err  error
		}
		answers := make(chan answer, 1)
		reply := func(body []byte, err error) { answers <- answer{body, err} }
		p.State().Replica.CallLeader(method, body, func() { serve(p.core.Load(), body, reply) }, reply)
		select {
		case a := <-answers:
			if !fault.Passing(a.err) && !errors.Is(a.err, fault.Moved) {
				return a.body, a.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, fault.Timeout
}

// State implements Server.
func (p *rigProcess) State() *State {
	c := p.core.Load()
	if c.stale.Load() && !p.down.Load() {
		p.s.rebuild.Lock()
		defer p.s.rebuild.Unlock()
		c = p.core.Load()
	}
	return &c.State
}

// Hub implements Server.
func (p *rigProcess) Hub() *watch.Hub { return p.hub }

// Now implements Server.
func (p *rigProcess) Now() time.Time { return time.Now() }

// Go implements Server.
func (p *rigProcess) Go(f func()) { go f() }

// After implements Server.
func (p *rigProcess) After(d time.Duration, f func()) (stop func()) {
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}

// Renew implements Server.
func (p *rigProcess) Renew(id int64, user uint64, done func(error)) {
	go func() {
		_, err := p.renewed(context.Background(), id, user)
		done(err)
	}()
}

// Grows implements Server.
func (p *rigProcess) Grows(int) {}

// Unreadable implements Server.
func (p *rigProcess) Unreadable(id int64, err error) {
	p.s.rig.t.Errorf("session %d at server %d: %v", id, p.s.id, err)
}

// history is that of package node.
func (p *rigProcess) history(i int, key, end []byte, from, to int64, bounds store.Bounds, prev bool) ([]store.Change, int64, error) {
	for {
		p.State() // waits while there is none
		c := p.core.Load()
		if i >= len(c.Stores) {
			return nil, 0, fault.Moved
		}
		changes, through, err := c.Stores[i].Changes(key, end, from, to, bounds, prev)
		switch {
		case !c.stale.Load():
			return changes, through, err
		case p.down.Load():
			return nil, 0, fault.Stopped
		}
	}
}
