package replica

import (
	"fmt"
	"sync/atomic"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/check"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/raftlog"
	"github.com/stoa-kv/stoa/internal/sequencer"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/wal"
)

// Network takes messages for other servers. It may lose and delay them, but
// keeps the order of those from one server. Its methods don't block and don't
// call back: some are called under locks.
type Network interface {
	// Raft sends a message of the group with this number (membership.Groups).
	Raft(to uint64, group int, m *raftpb.Message)
	// Send reports whether it accepted the packet. It reports later losses by
	// [Replica.Unreachable].
	Send(to uint64, p Packet) bool
	// Snapshot asks for the whole server's cut to be sent to a peer whose log
	// is too far behind. Asking again while one is on its way does nothing.
	Snapshot(to uint64)
}

// Disk makes log records durable, in order within each group. It doesn't block;
// it calls durable, from any goroutine, once the records and all before them
// are synced. With a nil durable the caller doesn't wait for them.
type Disk interface {
	Append(group int, records []wal.Record, durable func())
}

// Config has the parts of a replica. Stores, logs and machine have been
// recovered; from now on only the replica changes them.
type Config struct {
	ID uint64 // this server
	// Origin names this incarnation of this server: no two proposals of any
	// servers, at any time, may carry the same (Origin, Seq).
	Origin uint64

	ElectionTicks, HeartbeatTicks int
	// RequestTicks is the timeout of a request that waits for a leader or for
	// its answer.
	RequestTicks int64

	Logs    []*raftlog.Log
	Stores  []*store.Store
	Machine *apply.Machine
	Network Network
	Disk    Disk
	// Resized is called once nothing more is executed here, since the cluster goes on with
	// another number of partitions: the state has to be stored, and a replica made of the next
	// generation (recovery.Resize). It must not block and must not call back.
	Resized func()
	// Stops has Resized called also if the change is refused: the server is being forced.
	Stops bool
	// CheckTicks is how often, in ticks, the states of all servers are compared, if the cluster's
	// version has that; 0: only when a fenced one asks for it.
	CheckTicks int64
	// InitialCheck has this server ask for checks until one agrees with the state that it has loaded.
	InitialCheck bool
	// Fenced is called when a verdict has fenced this server, or has let it serve again (nil),
	// before anything else is executed. It must not call back. nil: it is not called.
	Fenced func(now *check.Fenced)
	// Told is called when operators have been told that this server was fenced, and had not been before. It must
	// not call back. nil: it is not called.
	Told func()
	// Calls are this server's, shared by its successive replicas; nil: this
	// replica's own.
	Calls *Calls

	// Wake requests that Work(group) runs soon. It doesn't block and doesn't
	// call back.
	Wake func(group int)
	// Closed is called when a partition's closed revision has moved. It is
	// called after the changes below it were given to the machine's sink; from
	// several goroutines, so that a lower one may follow a higher, and perhaps
	// once more after Stop.
	Closed func(partition int, revision int64)
	// Serve answers calls of other servers whose method is not the replica's
	// own. It may answer later, from any goroutine.
	Serve func(method uint32, body []byte, reply func(body []byte, err error))
	// Announced is called with what another server has passed to Announce. It must not take
	// long, and calls ready from any goroutine once this server is prepared. nil: it always is.
	Announced func(body []byte, ready func())
	// Expect says that an entry which may register extensions will probably be applied. It
	// must not take long. nil: it is not called.
	Expect func(e *command.Entry)
	// Role is called when this server has begun to stamp, with the number of the epoch (Write.Epoch), and with 0 when it
	// has stopped.
	Role func(epoch uint64)
	// Peers is called when the list of members has changed, or the servers with which this
	// one has links: the other members, and those that some group has still to let go.
	// [Replica.Peers] has them. nil: it is not called.
	Peers func()
	// Trace returns what follows a write that another server has forwarded, of its Trace.Wire;
	// nil: it is not followed. nil: none is.
	Trace func(wire []byte) *Trace

	// Fatal is called when this server can't go on: its log contradicts the leader's. It
	// should end the process. nil: panic.
	Fatal func(error)

	Logger *zap.Logger
}

// Replica is one server's part of all groups.
type Replica struct {
	cfg    Config
	seq    *sequencer.Sequencer
	groups []*group
	meet   meeting
	lead   leadership
	conf   confirmer
	calls  *Calls
	reads  readBatch

	// closed is the closed revision of each partition as far as this server
	// knows; it never goes back.
	closed []closedRevision
	told   atomic.Int64 // C when the followers were last told about it

	nextSeq atomic.Uint64
	multi   multiWaiters
	peers   peers
	settled settledWaiters
	resized resized

	following following
	checks    checks
	windows   windows
}

// New returns a replica that is not started.
func New(cfg Config) (*Replica, error) {
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	if cfg.Fatal == nil {
		cfg.Fatal = func(err error) { panic(err) }
	}
	if cfg.Calls == nil {
		cfg.Calls = NewCalls()
	}
	r := &Replica{
		cfg:     cfg,
		seq:     sequencer.New(len(cfg.Logs)),
		meet:    meeting{waiting: map[proposal]*arrivals{}},
		calls:   cfg.Calls,
		closed:  make([]closedRevision, len(cfg.Logs)),
		multi:   multiWaiters{m: map[uint64][]*Write{}},
		resized: resized{groups: cfg.Machine.Groups()},
	}
	r.lead.init(r, len(cfg.Logs))
	r.conf.init(r)
	r.reads.r = r
	for p := range cfg.Logs {
		g, err := newGroup(r, p)
		if err != nil {
			return nil, fmt.Errorf("starting raft group %d: %w", p, err)
		}
		r.groups = append(r.groups, g)
		g.closeShown() // perhaps nothing is applied for long
	}
	r.peers.follow(r)
	r.calls.attach(r)
	return r, nil
}

// numbering is the first number of this replica's rounds, and of a server's
// calls. An answer to an earlier incarnation may still come, after a restart or
// after a snapshot was installed, and must not be taken for one of this:
// neighbouring Origins give distant numbers.
func (r *Replica) numbering() uint64 {
	return r.cfg.Origin * 0x9e3779b97f4a7c15
}

// Start starts the groups. A server that is alone need not wait for its
// election timeout, nor does one that led all groups before their number changed.
func (r *Replica) Start(led bool) {
	if led {
		r.resized.eager.Store(r.now() + 2*int64(r.cfg.ElectionTicks))
	}
	if led || r.alone() {
		r.campaign()
	}
}

func (r *Replica) campaign() {
	for _, g := range r.groups {
		g.order(func(g *group) {
			if g.leader == 0 {
				_ = g.node.Campaign()
			}
		})
	}
}

// now is the clock, in ticks: the server's, which goes on from replica to replica.
func (r *Replica) now() int64 { return r.calls.now.Load() }

// deadline is the tick at which a request that comes now times out.
func (r *Replica) deadline() int64 { return r.now() + r.cfg.RequestTicks }

// Tick is one heartbeat interval.
func (r *Replica) Tick() {
	now := r.calls.now.Add(1)
	for _, g := range r.groups {
		g.tick()
	}
	r.lead.tick().run()
	r.conf.tick()
	r.calls.tick(now)
	r.reads.expire(now)
	r.multi.expire(now)
	r.settled.expire(now)
	r.following.expire(now)
	r.resized.tick(r, now)
	r.tellSettled()
	for p, g := range r.groups {
		g.wait.expire(now)
		r.reportClosed(p)
	}
	r.tellClosed(true)
	r.checks.tick(r, now)
	r.windows.tick(r, now)
	r.tickFence(now)
}

// Work runs a group until it has nothing to do.
func (r *Replica) Work(group int) { r.groups[group].work() }

// Packet is a message between servers other than Raft's. Zero fields are
// absent.
type Packet struct {
	Confirm    *Confirm
	ConfirmAck *ConfirmAck
	Closed     []Closed
	Call       *Call
	Reply      *Reply
	// AnswersLost means that replies which were sent before may not have
	// arrived.
	AnswersLost bool
	// Settled is the generation of members that all groups of the leader have reached.
	Settled uint64
}

// Receive handles a packet from another server.
func (r *Replica) Receive(from uint64, p Packet) {
	if p.Confirm != nil {
		r.cfg.Network.Send(from, Packet{ConfirmAck: r.answerConfirm(p.Confirm)})
	}
	if p.ConfirmAck != nil {
		r.conf.acked(from, p.ConfirmAck)
	}
	for _, c := range p.Closed {
		r.learnClosed(c)
	}
	if p.Call != nil {
		r.answer(from, p.Call)
	}
	if p.Reply != nil {
		r.calls.replied(p.Reply)
	}
	if p.AnswersLost {
		r.calls.lost(from)
	}
	if p.Settled > 0 {
		r.settled.reach(p.Settled)
	}
}

// ReceiveRaft handles a Raft message from another server. Those for groups of another
// generation are dropped.
func (r *Replica) ReceiveRaft(group int, m *raftpb.Message) {
	p, is := r.resized.groups.Partition(uint32(group))
	if !is {
		r.resized.missed(r, uint32(group), m)
		return
	}
	if m.GetType() == raftpb.MsgSnap || m.GetType() == raftpb.MsgTimeoutNow && r.cfg.Machine.Fence.Now() != nil {
		return
	}
	r.peers.hear(m.GetFrom(), r.now())
	r.groups[p].receive(m)
}

// Unreachable reports that the link to a peer broke or overflowed: some
// messages may be lost.
func (r *Replica) Unreachable(peer uint64) {
	for _, g := range r.groups {
		g.order(func(g *group) {
			g.acked.stale = true // it may not have heard
			g.node.ReportUnreachable(peer)
		})
	}
	r.calls.lost(peer)
	r.calls.answersLost(peer)
}

// SnapshotSent reports that the sending of a snapshot to a peer has ended,
// successfully or not.
func (r *Replica) SnapshotSent(peer uint64) {
	for _, g := range r.groups {
		g.order(func(g *group) { g.snapshotSent(peer) })
	}
}

// TransferAll asks every group that this server leads to hand its leadership to
// a peer: part of a graceful shutdown. It doesn't stamp meanwhile; if the peer hasn't taken over
// within an election timeout, it goes on.
func (r *Replica) TransferAll(to uint64) {
	for _, g := range r.groups {
		g.order(func(g *group) {
			if g.leading {
				g.handing = g.term.Load()
				g.node.TransferLeader(to)
			}
		})
	}
}

// handsOver reports whether the group is being handed to another server, on purpose. In Raft's half.
func (g *group) handsOver() bool {
	return g.handing == g.term.Load() && g.node.BasicStatus().LeadTransferee != 0
}

// Stop fails with err the requests that only this replica could have completed:
// reads, and writes that it has in its log. All others, and later ones, are
// left to Config.Calls. The callers of Work must have ended.
func (r *Replica) Stop(err error) {
	r.lead.stop().run()
	failReads(r.conf.end(), err)
	r.settled.stop(err)
	for _, g := range r.groups {
		g.stop(err)
	}
}

// Term is the term of group 0.
func (r *Replica) Term() uint64 { return r.groups[0].term.Load() }

// Progress returns the indexes to which a group's log is committed and applied
// here.
func (r *Replica) Progress(group int) (commit, applied uint64) {
	g := r.groups[group]
	return g.commit.Load(), g.applied.Load()
}

// Shown notes the revision of an answer of the leader that this server passes on: no later one without a revision of its own is below it.
func (r *Replica) Shown(rev int64) { r.calls.show(rev) }

// Revision is the highest closed revision of any partition here, or one that an answer has had here.
func (r *Replica) Revision() int64 {
	rev := max(1, r.calls.shown.Load())
	for p := range r.groups {
		rev = max(rev, r.Closed(p))
	}
	return rev
}
