package node

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/balance"
	"github.com/stoa-kv/stoa/internal/calllog"
	"github.com/stoa-kv/stoa/internal/check"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/load"
	"github.com/stoa-kv/stoa/internal/metrics"
	"github.com/stoa-kv/stoa/internal/password"
	"github.com/stoa-kv/stoa/internal/profile"
	"github.com/stoa-kv/stoa/internal/recovery"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/session/host"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/tenant"
	"github.com/stoa-kv/stoa/internal/throttle"
	"github.com/stoa-kv/stoa/internal/transport"
	"github.com/stoa-kv/stoa/internal/version"
	"github.com/stoa-kv/stoa/internal/watch"
)

// Node is a running server.
type Node struct {
	cfg       Config
	log       *zap.Logger
	transport *transport.Transport
	hub       *watch.Hub
	leases    *lease.Leader
	roles     sync.Mutex    // held while it begins or ceases to lead
	answered  atomic.Int64  // proposals of revocations
	revoked   chan struct{} // many of these were answered

	// core is the present life of the replicated state. install.go replaces it.
	core    atomic.Pointer[core]
	rebuild sync.Mutex
	forcing bool // the next core is forced again; under rebuild
	spool   installing
	calls   *replica.Calls // of each core's replica

	incarnation uint64
	leaseIDs    atomic.Uint64

	snapshots    sending
	raising      raising
	hashing      chan struct{} // held while a client's hash is computed, which reads the whole file and may keep all keys in memory
	filing       chan struct{} // held by the request that waits to flush, or has it
	copying      chan struct{} // held while there is a copy of the file for a backup
	changes      atomic.Int64  // leader changes seen
	installed    atomic.Int64  // snapshots of other servers
	lastLeader   atomic.Uint64
	flushDue     atomic.Int64 // since when a flush is, by clock; 0: none is
	flushTold    int64        // when it was last said that one takes too long, by clock; of tick
	unled        atomic.Int64 // since when no leader is known, by clock; 0: one is
	counts       counters
	lines        *lines
	since        time.Time // of clock
	requests     byKind    // how long those took that came here
	ranges       *[2]*metrics.Histogram
	readTxns     *[2]*metrics.Histogram
	moving       chan struct{} // keys begin to move
	linksStale   chan struct{} // peers have changed
	unpublished  chan struct{} // there may be something to publish
	learner      atomic.Bool   // this member has no vote
	level        atomic.Uint64 // the cluster's version that the log has told of
	leaving      atomic.Bool   // this server knows that it was removed
	sessions     *host.Sessions
	fence        *check.Fence
	codes        *apply.Codes
	fencing      sync.Mutex                // one goroutine at a time follows the fence
	led          atomic.Pointer[time.Time] // since when a leader is known, where the first check is awaited
	unchecked    sync.Once
	callLog      *calllog.Log
	profiles     profile.Set
	compilations compilations
	load         load.Meter
	lane         *throttle.Lane // of requests that are expensive to apply
	passwords    *password.Queue
	limits       *tenant.Limits

	life        context.Context
	end         context.CancelFunc
	running     sync.WaitGroup
	failOnce    sync.Once
	removedOnce sync.Once
	stopping    atomic.Bool
	ready       chan struct{}
	readied     sync.Once
}

// Start recovers what the data directory holds, or begins a new cluster there,
// and joins the others. It returns before there is a leader; see Ready.
func Start(cfg Config) (*Node, error) {
	cfg.setDefaults()
	n := newNode(cfg)
	c, err := n.recover()
	if err == nil {
		err = n.connect(c)
	}
	if err != nil {
		n.end()
		n.running.Wait()
		return nil, err
	}
	n.begin(c, false)
	n.run()
	return n, nil
}

func newNode(cfg Config) *Node {
	n := &Node{
		cfg: cfg, log: cfg.Logger, lines: newLines(), since: time.Now(),
		calls: replica.NewCalls(), codes: apply.NewCodes(paceCompilation), callLog: calllog.New(calllog.Default),
		leases: lease.NewLeader(time.Now), fence: new(check.Fence), ready: make(chan struct{}), spool: installing{turn: make(chan struct{}, 1)},
		hashing: make(chan struct{}, 1), filing: make(chan struct{}, 1), copying: make(chan struct{}, 1),
		revoked: make(chan struct{}, 1), moving: make(chan struct{}, 1), linksStale: make(chan struct{}, 1), unpublished: make(chan struct{}, 1),
	}
	requests := cfg.Metrics.Server.Requests
	n.requests, n.ranges, n.readTxns = newByKind(requests), requests("Range"), requests("ReadonlyTxn")
	n.life, n.end = context.WithCancel(context.Background())
	n.lane = throttle.New(n.clock, func(d time.Duration, f func()) { time.AfterFunc(d, f) }, mathrand.Float64)
	n.limits = tenant.New(n.clock)
	n.sessions = n.newSessions()
	return n
}

// recover makes the core of what this server has stored.
func (n *Node) recover() (*core, error) {
	if err := n.restoreFence(); err != nil {
		return nil, err
	}
	if err := n.drawIncarnation(); err != nil {
		return nil, err
	}
	var err error
	if n.passwords, err = newPasswords(); err != nil {
		return nil, err
	}
	if err := backend.RemoveRests(n.dbPath()); err != nil {
		return nil, err
	}
	c, err := n.open()
	if err != nil {
		return nil, err
	}
	err = n.noteBegun()
	if err == nil {
		err = n.defragmentAtStart(c)
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// connect makes what carries the changes of the core to clients, and its messages to the other servers.
func (n *Node) connect(c *core) error {
	n.core.Store(c)
	n.noteMembers(c)
	n.startHub(c)
	if err := n.startTransport(c); err != nil {
		return errors.Join(err, c.close())
	}
	return nil
}

// run starts what goes on from core to core.
func (n *Node) run() {
	n.running.Go(func() { n.lines.run(n.life, n.log) })
	n.every(n.cfg.Tick, nil, n.tick)
	n.running.Go(n.flushLoop)
	n.every(leaseInterval, n.revoked, n.expire)
	n.running.Go(n.scrubLoop)
	n.every(leaseInterval, n.moving, n.move)
	n.every(balance.Interval, nil, (&balancer{n: n}).weigh)
	n.running.Go(n.publish)
	n.running.Go(n.watchVersions)
	n.running.Go(n.followPeers)
	n.startCompactor()
}

// drawIncarnation names this process among all that ever propose.
func (n *Node) drawIncarnation() error {
	var seed [16]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return fmt.Errorf("drawing an incarnation number: %w", err)
	}
	n.incarnation = binary.LittleEndian.Uint64(seed[:8]) | 1
	n.leaseIDs.Store(binary.LittleEndian.Uint64(seed[8:]))
	return nil
}

func (n *Node) startHub(c *core) {
	n.hub = watch.NewHub(len(c.stores), n.history, watch.Options{
		Parts:    c.machine.Placement().Wide,
		Moving:   c.machine.Placement().Transit() != nil,
		MayWatch: n.cfg.MayWatch,
	})
	c.feed = n.hub.Reset(recovery.Published(c.stores))
	n.enforce(c, c.machine.Auth())
	if n.Fenced() {
		n.hub.Fence(fault.Fenced)
	}
	n.running.Go(func() { n.hub.Run(n.life) })
}

func (n *Node) startTransport(c *core) error {
	peers := map[uint64][]string{}
	for _, m := range n.addresses(c) {
		if m.GetID() != n.cfg.ID {
			peers[m.GetID()] = m.GetPeerURLs()
		}
	}
	o := transport.Options{
		ID: n.cfg.ID, ClusterID: n.cfg.ClusterID, Partitions: len(c.stores), Peers: peers, TLS: n.cfg.PeerTLS,
		Handler: handler{n}, Logger: n.log, Metrics: n.cfg.Observe.Transport,
		Silence: n.cfg.Election, URLs: n.ownURLs, IsRemoved: n.isRemoved,
		Removed: n.refusedAsRemoved,
		Known:   n.cfg.Known,
		Level:   func() version.Level { return n.core.Load().machine.Level() },
	}
	if n.cfg.Registry != nil {
		n.identifyTo(&o)
	}
	t, err := transport.New(o)
	if err != nil {
		return fmt.Errorf("starting the transport: %w", err)
	}
	n.transport = t
	return nil
}

// current is the core to work on. While a snapshot is being installed there is
// none, and it waits for that. A request waits in present first; what it asks behind that, and what need only have been true when it
// came, is asked of core.Load, which never waits.
func (n *Node) current() *core {
	c := n.core.Load()
	if c.stale.Load() {
		n.rebuild.Lock()
		defer n.rebuild.Unlock()
		return n.core.Load()
	}
	return c
}

// present is current for a request, which waits no longer than its context lasts: a large snapshot takes minutes, and one on a disk
// that hangs for good.
func (n *Node) present(ctx context.Context) (*core, error) {
	c := n.core.Load()
	if !c.stale.Load() {
		return c, nil
	}
	n.cfg.Detach(ctx)
	select {
	case <-c.replaced:
		return n.core.Load(), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-n.life.Done():
		return nil, fault.Stopped
	}
}

// OpenDoor lets the other servers in at the peer port, and starts the links to them.
func (n *Node) OpenDoor(d *transport.Door) { d.Open(n.transport) }

// Ready is closed when this server first knows of a leader that serves, and has the state
// of the cluster that it joins.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// Done is closed when the node stops.
func (n *Node) Done() <-chan struct{} { return n.life.Done() }

// fatal ends the process: see invariant 1. Any goroutine may call it, with any locks.
func (n *Node) fatal(err error) {
	n.failOnce.Do(func() {
		if n.cfg.Fatal == nil {
			n.log.Error("the server can't go on", zap.Error(err))
			return
		}
		n.cfg.Fatal(err)
	})
}

// damaged ends the process if an error says that the backend file can't be relied on:
// what can't be read now won't be readable later, and the file is what other members
// would get as a snapshot. They have the data; this server would only hide from them, and
// from its operator, that it has not.
func (n *Node) damaged(err error) error {
	if errors.Is(err, backend.ErrDamaged) || errors.Is(err, store.ErrMissing) {
		n.fatal(err)
	}
	return err
}
