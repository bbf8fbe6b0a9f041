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
	maxInflight      = 256     // MsgApps on their way to a follower
	maxInflightBytes = 64 << 20
	maxEntryCommands = 2048    // commands batched into one entry
	maxEntryBytes    = 1 << 20 // unless a single command is larger
	maxOpenEntries   = 2       // own batches proposed and not yet applied
	// Partitions to meet for writes that are batched; one write may have more. Each
	// logs the whole batch.
	maxBatchParts = 4
	// MaxPendingWrites is how many writes may wait in one group before clients
	// are told "too many requests".
	MaxPendingWrites = 16384
)

// group is one partition's Raft group on this server.
type group struct {
	r     *Replica
	id    int
	node  *raft.RawNode
	log   *raftlog.Log
	store *store.Store

	in    inbox
	queue []queued // stamped, to be proposed; under the sequencer's lane

	// Owned by the caller of Work.
	committed []item            // to be applied; the front may wait for its rendezvous
	acks      []*raftpb.Message // to be given back to Raft once their entries are applied
	blocked   bool
	stamps    []stampAt           // of entries appended as the leader, until committed
	open      int                 // own batches not yet applied
	waiting   map[uint64][]*Write // by the Seq of their entry
	term      uint64
	leader    uint64
	leading   bool
	barrier   uint64 // Seq of the barrier entry under way, or 0
	acked     acknowledged
	catching  map[uint64]*catchingUp // of the followers, by their ids
	settled   uint64                 // commit index a tick ago

	// Published for others.
	pending    atomic.Int64  // writes accepted and not yet answered
	curTerm    atomic.Uint64 // invariant 3
	commit     atomic.Uint64
	applied    atomic.Uint64
	leaderSeen atomic.Uint64
	needed     atomic.Uint64

	wait waiters
}

// inbox is what has come for a group since its last Work.
type inbox struct {
	mu sync.Mutex
	mail
	writes  []*Write // stay until there is room for their entry
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

// mail is what one Work takes.
type mail struct {
	ticks    int
	messages []*raftpb.Message
	durable  []*raftpb.Message
	orders   []func(*group)
	resumed  bool
}

func newGroup(r *Replica, id int) (*group, error) {
	g := &group{
		r: r, id: id,
		log:     r.cfg.Logs[id],
		store:   r.cfg.Stores[id],
		waiting: map[uint64][]*Write{},
	}
	index, _ := g.store.Applied()
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
		Logger:                    raftLogger{r.cfg.Logger.Sugar().With("group", id)},
	})
	if err != nil {
		return nil, err
	}
	g.node = node
	st := node.BasicStatus()
	g.term = st.GetTerm()
	g.curTerm.Store(g.term)
	g.commit.Store(st.GetCommit())
	g.applied.Store(index)
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

// put changes the inbox and sees to it that Work will run.
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

func (g *group) tick() { g.put(func(in *inbox) { in.ticks++ }) }
func (g *group) receive(m *raftpb.Message) {
	g.put(func(in *inbox) { in.messages = append(in.messages, m) })
}
func (g *group) order(fn func(*group)) {
	g.put(func(in *inbox) { in.orders = append(in.orders, fn) })
}
func (g *group) resume() { g.put(func(in *inbox) { in.resumed = true }) }
func (g *group) wake()   { g.put(func(*inbox) {}) }

// work is one turn of the group's loop.
func (g *group) work() {
	in := g.take()
	for _, order := range in.orders {
		order(g)
	}
	for range in.ticks {
		g.acked.stale = true
		g.node.Tick()
	}
	for _, m := range in.messages {
		// An error only says that the message is not for the current
		// configuration or is of a kind that peers don't send.
		_ = g.node.Step(m)
	}
	for _, m := range in.durable {
		_ = g.node.Step(m)
	}
	if in.resumed {
		g.blocked = false
	}
	if in.ticks > 0 {
		g.noteNeeded()
		g.expire(g.r.now())
	}
	g.ready()
	moved := g.apply()
	g.propose()
	g.ready()
	moved = g.apply() || moved
	g.r.tellClosed(moved)
}
