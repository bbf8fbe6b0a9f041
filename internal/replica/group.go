package replica

import (
	"sync"
	"sync/atomic"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/raftlog"
	"github.com/stoa-kv/stoa/internal/store"
)

// Bounds of one group.
const (
	maxMessageBytes  = 1 << 20 // of entries in one MsgApp
	maxInflight      = 256     // MsgApps in flight to a follower
	maxInflightBytes = 64 << 20
	maxEntryCommands = 2048    // commands batched into one entry
	maxEntryBytes    = 1 << 20 // unless a single command is larger
	maxOpenEntries   = 2       // own batches proposed and not yet applied
	// Participants of a batch; one write may have more. Each logs the entire
	// batch.
	maxBatchParts = 4
	// maxPendingWrites is the number of writes that may wait in one group
	// before further ones fail with "too many requests".
	maxPendingWrites = 16384
)

// group is one partition's Raft group on this server. It has two halves: one
// steps Raft, the other applies what Raft has committed. Its loop runs both in
// turn; while an apply takes long, other goroutines step Raft instead (attend).
type group struct {
	r     *Replica
	id    int
	log   *raftlog.Log
	store *store.Store

	in    inbox
	queue []queued // stamped, to be proposed; under the sequencer's lane

	// Raft's half.
	raft         sync.Mutex // held by the one that steps Raft
	node         *raft.RawNode
	acks         []*raftpb.Message // to be given back to Raft once their entries are applied
	stamps       []stampAt         // of entries appended as the leader, until committed
	leader       uint64
	leading      bool
	handing      uint64 // the term in which it was last asked to hand its leadership over, or 0
	acked        acknowledged
	catching     map[uint64]*catchingUp // of the followers, by their ids
	change       reconfiguration
	disk         ownDisk
	ahead        uint64 // index of the last step that Raft got (giveRaft)
	held         *item  // the last step, if Raft goes on in the configuration before it (giveRaft), or nil
	commitAtTick uint64 // commit index a tick ago
	traced       []traced
	failed       bool    // the log contradicts the leader's: no further processing
	effects      effects // collected under raft

	// Between the halves.
	mu        sync.Mutex
	committed []item              // to be applied; the front may wait for its rendezvous
	stepping  int                 // how many of them are steps
	waiting   map[uint64][]*Write // by the Seq of their entry
	open      int                 // own batches not yet applied
	barrier   atomic.Uint64       // Seq of the barrier entry in flight, or 0

	// The half that applies, of the caller of Work alone.
	blocked bool         // at a rendezvous
	since   atomic.Int64 // the tick after that in which the present apply began, or 0

	// Read by other goroutines.
	pending    atomic.Int64  // writes accepted and not yet answered
	term       atomic.Uint64 // invariant 3; Raft's half changes it
	commit     atomic.Uint64
	applied    atomic.Uint64
	met        atomic.Uint64 // of the last rendezvous that was executed; see closedHere
	leaderSeen atomic.Uint64
	needed     atomic.Uint64

	wait waiters
}

// inbox has the inputs of a group since its last Work.
type inbox struct {
	mu sync.Mutex
	mail
	writes  []*Write // stay until there is room for their entry
	resumed bool     // the rendezvous at which the group waits has been executed
	woken   bool
	stopped bool // takes no more writes
}

// first takes out the first n writes. With mu held.
func (in *inbox) first(n int) []*Write {
	taken := in.writes[:n:n]
	if in.writes = in.writes[n:]; len(in.writes) == 0 {
		in.writes = nil
	}
	return taken
}

// mail is the input of one step of Raft.
type mail struct {
	ticks    int
	messages []*raftpb.Message
	durable  []*raftpb.Message
	orders   []func(*group)
}

func newGroup(r *Replica, id int) (*group, error) {
	g := &group{
		r: r, id: id,
		log:     r.cfg.Logs[id],
		store:   r.cfg.Stores[id],
		waiting: map[uint64][]*Write{},
	}
	index, _ := g.store.Applied()
	g.keepVote(index)
	node, err := raft.NewRawNode(&raft.Config{
		ID:                        r.cfg.ID,
		ElectionTick:              r.cfg.ElectionTicks,
		HeartbeatTick:             r.cfg.HeartbeatTicks,
		Storage:                   g.log,
		Applied:                   index,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             maxMessageBytes,
		MaxCommittedSizePerReady:  16 << 20,
		MaxUncommittedEntriesSize: 1 << 30,
		MaxInflightMsgs:           maxInflight,
		MaxInflightBytes:          maxInflightBytes,
		CheckQuorum:               true,
		PreVote:                   true,
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
		Logger:                    raftLogger{r.cfg.Logger.Sugar().With("group", id), id},
	})
	if err != nil {
		return nil, err
	}
	g.node = node
	st := node.BasicStatus()
	g.term.Store(st.GetTerm())
	g.commit.Store(st.GetCommit())
	g.applied.Store(index)
	g.stepBehind()
	return g, nil
}

// take empties the inbox.
func (g *group) take() mail {
	g.in.mu.Lock()
	defer g.in.mu.Unlock()
	m := g.in.mail
	g.in.mail, g.in.woken = mail{}, false
	return m
}

// put changes the inbox and wakes Work.
func (g *group) put(change func(*inbox)) {
	g.in.mu.Lock()
	change(&g.in)
	woken := g.in.woken
	g.in.woken = true
	g.in.mu.Unlock()
	if !woken {
		g.r.cfg.Wake(g.id)
	}
}

func (g *group) tick() {
	g.put(func(in *inbox) { in.ticks++ })
	g.attend()
}

func (g *group) receive(m *raftpb.Message) {
	g.put(func(in *inbox) { in.messages = append(in.messages, m) })
	g.attend()
}

// order has Raft's half run fn soon. It may be called under locks.
func (g *group) order(fn func(*group)) {
	g.put(func(in *inbox) { in.orders = append(in.orders, fn) })
}
func (g *group) resume() { g.put(func(in *inbox) { in.resumed = true }) }
func (g *group) wake()   { g.put(func(*inbox) {}) }

// work is one turn of the group's loop.
func (g *group) work() {
	g.turn(g.step)
	g.in.mu.Lock() // behind take: who resumes the group from here on wakes it, too
	g.blocked = g.blocked && !g.in.resumed
	g.in.resumed = false
	g.in.mu.Unlock()
	moved := g.apply()
	g.turn(func() {
		g.stepAhead()
		g.acknowledge()
		g.propose()
		g.ready()
	})
	again := g.apply()
	if again || g.blocked {
		g.turn(g.acknowledge)
	}
	g.r.tellClosed(moved || again)
}

// turn runs fn in Raft's half, and then its effects.
func (g *group) turn(do func()) {
	g.raft.Lock()
	g.finish(do)
}

// finish is turn with raft held. A group that has failed drops what comes.
func (g *group) finish(do func()) {
	if g.failed {
		g.take()
	} else {
		do()
	}
	e := g.effects
	g.effects = nil
	g.raft.Unlock()
	e.run()
}

// step passes the inputs to Raft.
func (g *group) step() {
	in := g.take()
	for _, order := range in.orders {
		order(g)
	}
	for range in.ticks {
		g.acked.stale = true
		g.node.Tick()
	}
	for _, m := range in.messages {
		if g.receiveRaft(m); g.failed {
			return
		}
	}
	for _, m := range in.durable {
		_ = g.node.Step(m)
	}
	if in.ticks > 0 {
		g.noteNeeded()
		g.watchDisk(g.r.now())
		g.expire(g.r.now())
	}
	g.ready()
}

// attend steps Raft for a loop that an apply has held up for a tick: however long
// scripts and large requests take, heartbeats go out and votes are answered. Its caller
// has put something into the inbox, and holds no lock. Where raft is held already, its
// holder looks into the inbox again after it. It steps only if the apply still runs then: a loop
// takes raft after each apply, so nobody steps Raft behind the last Work.
func (g *group) attend() {
	for g.late() && g.hasMail() && g.raft.TryLock() {
		g.finish(func() {
			if g.late() {
				g.step()
			}
		})
	}
}

// late reports whether an apply has been running since before the last tick.
func (g *group) late() bool {
	since := g.since.Load()
	return since != 0 && since <= g.r.now()
}

func (g *group) hasMail() bool {
	g.in.mu.Lock()
	defer g.in.mu.Unlock()
	return g.in.ticks+len(g.in.messages)+len(g.in.durable)+len(g.in.orders) > 0
}
