package host

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/raftlog"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/session"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/tenant"
	"github.com/stoa-kv/stoa/internal/throttle"
	"github.com/stoa-kv/stoa/internal/wal"
	"github.com/stoa-kv/stoa/internal/watch"
)

// world is a few servers with two partitions, and all that would happen by itself
// elsewhere: their goroutines, their timers and the network between them. Nothing
// moves before the story says so.
type world struct {
	t       *testing.T
	now     time.Time
	servers []*server
	wire    []envelope
	ticked  time.Time // the last tick of the servers
	cut     bool      // servers say nothing to each other but Raft's messages
	held    bool      // keys that should move don't
	user    uint64    // on whose behalf everything is done
	said    strings.Builder
}

// server is what surrounds the sessions of one of them.
type server struct {
	w        *world
	id       uint64
	state    State
	another  *State // shown in the place of the state
	stirred  bool   // the hub has something to do
	crammed  bool   // and takes no more watches
	forbids  bool   // all watches, as far as it knows
	calls    *replica.Calls
	hub      *watch.Hub
	feed     *watch.Feed
	sessions *Sessions
	limits   *tenant.Limits
	woken    placement.Set // groups whose loops have something to do
	stuck    placement.Set // those whose loops don't run
	asleep   bool          // nothing is done soon
	soon     []func()
	timers   []*timer
	renewals []func(error) // not carried out yet
}

type timer struct {
	at time.Time
	f  func()
}

type envelope struct {
	from, to uint64
	group    int
	raft     *raftpb.Message // nil: a packet
	packet   replica.Packet
}

const (
	partitions    = 2
	tick          = 100 * time.Millisecond
	electionTicks = 10
	requestTicks  = 20
)

func newWorld(t *testing.T, servers int, cfg Config) *world {
	start := time.Unix(1000, 0)
	w := &world{t: t, now: start, ticked: start}
	var voters []uint64
	for i := range servers {
		voters = append(voters, uint64(i+1))
	}
	cfg.Ended = func(sink session.Sink, why error) { w.say("%d ends: %v", sink.(*client).id, why) }
	for _, id := range voters {
		w.servers = append(w.servers, newServer(w, id, voters, cfg))
	}
	return w
}

func newServer(w *world, id uint64, voters []uint64, cfg Config) *server {
	s := &server{w: w, id: id, calls: replica.NewCalls()}
	m := placement.New(partitions)
	var logs []*raftlog.Log
	for p := range partitions {
		logs = append(logs, raftlog.New(uint32(p), &raftpb.ConfState{Voters: voters}))
		st := store.New(nil)
		st.SetApplied(1, 1)
		s.state.Stores = append(s.state.Stores, st)
	}
	s.hub = watch.NewHub(partitions, s.history, watch.Options{Parts: m.Range, MayWatch: func() bool { return !s.crammed }})
	cfg.Lane = throttle.New(func() int64 { return w.now.UnixNano() }, func(d time.Duration, f func()) { s.After(d, f) }, func() float64 { return 0.5 })
	s.limits = tenant.New(func() int64 { return w.now.UnixNano() })
	cfg.Limits = s.limits
	s.sessions = New(s, cfg)
	s.state.Machine = apply.New(apply.Config{
		Stores: s.state.Stores, Leases: lease.NewTable(), Placement: m, Sink: s, Observer: observer{s},
	})
	s.state.Machine.LoadMembership(membership.OfIDs(voters...), nil)
	var err error
	s.state.Replica, err = replica.New(replica.Config{
		ID: id, Origin: id * 1000, ElectionTicks: electionTicks, HeartbeatTicks: 1, RequestTicks: requestTicks,
		Logs: logs, Stores: s.state.Stores, Machine: s.state.Machine, Calls: s.calls,
		Network: wire{s}, Disk: sound{}, Wake: func(p int) { s.woken |= placement.Of(p) },
		Closed: func(p int, rev int64) {
			s.feed.Advance(p, rev)
			s.stirred = true
			s.sessions.Advanced()
		},
	})
	require.NoError(w.t, err)
	s.feed = s.hub.Reset([]int64{1, 1}, 0)
	s.feed.Permit(1, func(uint64, []byte, []byte) error {
		if s.forbids {
			return fault.PermissionDenied
		}
		return nil
	}, nil)
	return s
}

// State implements Server.
func (s *server) State() *State {
	if s.another != nil {
		return s.another
	}
	return &s.state
}

// Hub implements Server.
func (s *server) Hub() *watch.Hub { return s.hub }

// Now implements Server.
func (s *server) Now() time.Time { return s.w.now }

// Go implements Server.
func (s *server) Go(f func()) { s.soon = append(s.soon, f) }

// After implements Server.
func (s *server) After(d time.Duration, f func()) (stop func()) {
	t := &timer{s.w.now.Add(d), f}
	s.timers = append(s.timers, t)
	return func() { s.timers = slices.DeleteFunc(s.timers, func(o *timer) bool { return o == t }) }
}

// Renew implements Server.
func (s *server) Renew(id int64, _ uint64, done func(error)) {
	s.w.say("server %d is to renew %d", s.id, id)
	s.renewals = append(s.renewals, done)
}

// Grows implements Server.
func (s *server) Grows(int) {}

// Unreadable implements Server.
func (s *server) Unreadable(id int64, err error) { s.w.t.Errorf("session %d: %v", id, err) }

func (s *server) history(p int, key, end []byte, from, to int64, bounds store.Bounds, prev bool) ([]store.Change, int64, error) {
	return s.state.Stores[p].Changes(key, end, from, to, bounds, prev)
}

// Changes implements apply.Sink.
func (s *server) Changes(p int, rev int64, changes []store.Change) {
	s.feed.Changes(p, rev, changes)
	s.stirred = true
}

// observer implements apply.Observer.
type observer struct{ *server }

func (o observer) LeaseGranted(lease.Lease)            {}
func (o observer) LeaseRevoked(id int64)               { o.sessions.Revoked(id) }
func (o observer) LeaseEnding(int64)                   {}
func (o observer) AuthChanged(now *auth.State)         {}
func (o observer) Authenticated(_, _ uint64, _ string) {}
func (o observer) Compacted(rev int64)                 { o.hub.Compacted(rev) }
func (o observer) Moved(through int64, to *placement.Map) {
	o.state.Replica.AllClosed(through)
	o.feed.Moved(through, to.Wide, to.Transit() != nil)
}

// wire keeps what a server says until it is carried.
type wire struct{ *server }

func (n wire) Raft(to uint64, group int, m *raftpb.Message) {
	n.w.wire = append(n.w.wire, envelope{from: n.id, to: to, group: group, raft: m})
}

func (n wire) Send(to uint64, p replica.Packet) bool {
	n.w.wire = append(n.w.wire, envelope{from: n.id, to: to, packet: p})
	return true
}

func (n wire) Snapshot(to uint64) { n.w.t.Errorf("server %d needs a snapshot", to) }

// sound is a disk that is done at once.
type sound struct{}

func (sound) Append(_ int, _ []wal.Record, durable func()) {
	if durable != nil {
		durable()
	}
}

// quiesce lets everything happen that doesn't need time.
func (w *world) quiesce() {
	for range 1000 {
		moved := w.carry()
		for _, s := range w.servers {
			moved = s.work() || moved
			moved = s.run() || moved
		}
		if !moved && !w.moveOn() {
			return
		}
	}
	w.t.Fatal("the servers don't become quiescent")
}

// moveOn brings keys on their way, once nothing else is to be done.
func (w *world) moveOn() bool {
	for _, s := range w.servers {
		step := s.state.Machine.Ahead(store.Budget{Keys: 1, Visits: 1})
		if step == nil || !s.state.Replica.Leading() || w.held {
			continue
		}
		s.state.Replica.Submit(&replica.Write{
			Command: command.Command{Kind: command.Move, Body: step.AppendTo(nil)},
			Parts:   s.state.Machine.Placement().All(), System: true, Done: func(replica.Outcome) {},
		})
		return true
	}
	return false
}

// work runs the loops of a server's groups that have something to do, and its hub.
func (s *server) work() bool {
	todo := s.woken &^ s.stuck
	for p := range todo.Each() {
		s.woken &^= placement.Of(p)
		s.state.Replica.Work(p)
	}
	s.hub.Step()
	return todo != 0
}

// run does what was to be done soon.
func (s *server) run() bool {
	if s.asleep {
		return false
	}
	soon := s.soon
	s.soon = nil
	for _, f := range soon {
		f()
	}
	return len(soon) > 0
}

// carry lets everything arrive that is on its way.
func (w *world) carry() (moved bool) {
	var kept []envelope
	wire := w.wire
	w.wire = nil
	for _, e := range wire {
		switch to := w.servers[e.to-1].state.Replica; {
		case e.raft != nil:
			moved = true
			to.ReceiveRaft(e.group, e.raft)
		case w.cut:
			kept = append(kept, e)
		default:
			moved = true
			to.Receive(e.from, e.packet)
		}
	}
	w.wire = append(kept, w.wire...)
	return moved
}

// wait lets time pass, and everything happen when it is due.
func (w *world) wait(d time.Duration) {
	for until := w.now.Add(d); ; w.quiesce() {
		due, next := until, func() bool { return false }
		if at := w.ticked.Add(tick); !at.After(due) {
			due, next = at, w.tick
		}
		for _, s := range w.servers {
			for _, t := range s.timers {
				if t.at.Before(due) || t.at.Equal(due) && due.Equal(until) {
					due, next = t.at, func() bool { return s.fire(t) }
				}
			}
		}
		w.now = due
		if !next() {
			return
		}
	}
}

func (w *world) tick() bool {
	w.ticked = w.now
	for _, s := range w.servers {
		s.state.Replica.Tick()
	}
	return true
}

func (s *server) fire(t *timer) bool {
	s.timers = slices.DeleteFunc(s.timers, func(o *timer) bool { return o == t })
	t.f()
	return true
}

// elect makes a server the one that stamps.
func (w *world) elect(s *server) {
	if before := slices.IndexFunc(w.servers, func(o *server) bool { return o.state.Replica.Leading() }); before >= 0 {
		w.servers[before].state.Replica.TransferAll(s.id)
		w.quiesce()
	}
	s.state.Replica.Start(false)
	for n := 0; n < 4*electionTicks && !s.state.Replica.Leading(); n++ {
		s.state.Replica.Tick()
		w.quiesce()
	}
	require.True(w.t, s.state.Replica.Leading())
}

// commit carries out a request outside sessions.
func (w *world) commit(s *server, kind command.Kind, req proto.Message, system bool) {
	body, err := proto.Marshal(req)
	require.NoError(w.t, err)
	p := s.state.Machine.Plan(kind, req, func() (string, int64) { return "", 0 })
	c := p.Command(kind, body)
	c.User = w.user
	s.state.Replica.Submit(&replica.Write{
		Command: c, Parts: p.Parts, System: system,
		Done: func(out replica.Outcome) {
			switch {
			case out.Err != nil:
				w.say("somebody's %v: %v", kind, out.Err)
			case kind == command.Put:
				w.say("somebody's put at %d", out.Response.(*pb.PutResponse).Header.Revision)
			}
		},
	})
}

func (w *world) say(format string, args ...any) { fmt.Fprintf(&w.said, format+"\n", args...) }
