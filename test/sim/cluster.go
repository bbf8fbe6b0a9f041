package sim

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/session/host"
	"github.com/stoa-kv/stoa/internal/version"
	"github.com/stoa-kv/stoa/internal/watch"
)

const (
	tickInterval  = 10 * time.Millisecond
	electionTicks = 10
	requestTicks  = 150
)

var errDisk = errors.New("the disk has failed")

// cluster is everything that a seed makes.
type cluster struct {
	loop       *loop
	mutation   Mutation
	plan       plan
	partitions int
	has        features
	prepared   int // how far clients are with registering extensions
	servers    []*server
	begins     []*pb.Member // the members that the cluster begins with
	net        *network
	operator   *operator    // nil: the members never change
	upgrader   *meddler     // nil: nor does the version
	keeper     *keeper      // nil: there are no users
	steward    *steward     // nil: there are no users with few rights
	balancer   *meddler     // nil: only extensions move keys
	resizer    *meddler     // nil: the number of partitions never changes
	alarms     *meddler     // nil: nobody runs out of space
	saver      *saver       // nil: nobody takes backups
	files      *files       // nil: files are in memory
	codes      *apply.Codes // of all servers, as they depend on the sources alone
	ledger     *ledger
	keys       *keyspace
	clients    []*client
	watchers   []*watcher
	sessions   []*sessionClient
	finished   []*watched // watches that have ended
	history    []*op
	ending     map[int64]time.Duration // leases that end in steps: when the first one was first applied
	odd        []int64                 // leases whose TTL was another in one server (flips.go)
	promoted   []time.Duration         // when servers have begun to stamp
	seed       uint64
	origins    uint64
	troubles   []*Trouble        // all that were ever planned
	happened   int               // how many of them
	only       []int             // those that are to happen in a repeated run; nil: it isn't one
	sources    map[string]func() // of troubles, in a repeated run
	elections  *rand.ChaCha8     // what Raft draws from
	quiet      bool              // no new faults, no new requests
	length     time.Duration     // of the time before that
	floor      int64             // the highest revision that any client was shown
	force      bool              // the run ends with one server that is forced
	rounds     int               // how often that has been so
	compacted  int64             // the highest revision at which clients of those times had requested a compaction
	most       time.Duration     // when the last troubles end; 0: the seed decides
	level      version.Level     // at which the files begin
	lowest     version.Level     // to which the version goes down
	checkTicks int64             // 0: servers don't compare their states
	survivor   *server           // that one, once the others are gone
	violated   string            // the check that has failed
	failure    error
	stats      Stats
	inSessions host.Counts
}

// plan is what a seed draws for its whole run.
type plan struct {
	delay                  time.Duration // of a message, about
	loseOneIn, repeatOneIn int
	lateOneIn              int
	late                   time.Duration // a message is, and all behind it, at most
	flush                  time.Duration // between flushes, about
	segment                int64         // bytes of a log segment
	tail                   uint64        // log entries kept behind the file
	held                   int64         // bytes of them for servers that are known to need them
	recent, queue          int           // of the watch hub
	clients, watchers      int
	think                  time.Duration // of a client, between two requests, at most
	trouble                time.Duration // how long faults go on
	pause                  time.Duration // between faults, about
	lossy                  bool          // a minority never comes back
	step                   time.Duration // between two steps of keys that move, about
	flushing, transfer     time.Duration // of a flush that takes long, and of a snapshot, at most
	down                   time.Duration // until a server that has crashed starts again, at most
	partitions             int           // 0: the seed, or an option, decides
}

const usualFlush, usualTransfer = 200 * time.Millisecond, 50 * time.Millisecond

func (p *plan) hub(m *placement.Map) watch.Options {
	return watch.Options{Parts: m.Wide, Moving: m.Transit() != nil, RecentRevisions: p.recent, QueueResponses: p.queue, BatchEvents: 7}
}

func drawPlan(l *loop) plan {
	delay := l.between(100*time.Microsecond, 3*time.Millisecond)
	return plan{
		delay:       delay,
		lateOneIn:   200,
		late:        20 * delay,
		loseOneIn:   pick(l, []int{20, 100, 1000, 1 << 30}),
		repeatOneIn: pick(l, []int{20, 200, 1 << 30}),
		flush:       l.between(20*time.Millisecond, 200*time.Millisecond),
		segment:     int64(pick(l, []int{2 << 10, 8 << 10, 64 << 10})),
		tail:        pick(l, []uint64{1, 10, 50, 300}),
		recent:      pick(l, []int{2, 20, 1000}),
		queue:       pick(l, []int{1, 4, 100}),
		clients:     pick(l, []int{3, 5, 7, 7, 20}),
		think:       pick(l, []time.Duration{time.Millisecond, 20 * time.Millisecond, 60 * time.Millisecond}),
		watchers:    3 + l.rng.IntN(3),
		trouble:     l.between(2*time.Second, 5*time.Second),
		pause:       l.between(50*time.Millisecond, 500*time.Millisecond),
		lossy:       l.chance(3),
		step:        pick(l, []time.Duration{2 * time.Millisecond, 10 * time.Millisecond, 60 * time.Millisecond}),
		held:        pick(l, []int64{0, 2 << 10, 1 << 30}),
		flushing:    usualFlush,
		transfer:    usualTransfer,
		down:        800 * time.Millisecond,
	}
}

// fail ends the run.
func (c *cluster) fail(check, format string, args ...any) {
	if c.failure != nil {
		return
	}
	c.violated = check
	c.failure = fmt.Errorf("%s at %v: %s", check, c.loop.now, fmt.Sprintf(format, args...))
	c.loop.printf("FAILED %v", c.failure)
}

// see records that a client was shown a revision.
func (c *cluster) see(rev int64) { c.floor = max(c.floor, rev) }

// lifeEnded notifies all clients and links of a process of its end.
func (c *cluster) lifeEnded(l *life) {
	for _, cl := range c.clients {
		cl.lost(l)
	}
	for _, w := range l.streams {
		w.lost()
	}
	for _, cl := range c.sessions {
		if cl.stream != nil && cl.stream.life == l {
			cl.lost()
		}
	}
	if c.saver != nil {
		c.saver.lost(l)
	}
}

func (c *cluster) restartLater(s *server) {
	c.loop.after(c.loop.between(10*time.Millisecond, c.plan.down), "restart", s.id, 0, s.start)
}

func (c *cluster) logger(id uint64) *zap.Logger {
	if c.loop.out == nil {
		return zap.NewNop()
	}
	return newLogger(c.loop, id)
}

// own is the user of whoever may do everything, including the servers. Without a keeper there
// are no users: an earlier version of the cluster, at which a run may begin, knows of none.
func (c *cluster) own() uint64 {
	if c.keeper != nil {
		return auth.Own
	}
	return 0
}

func newCluster(o Options, out io.Writer) *cluster {
	l := newLoop(o.Seed, out)
	c := &cluster{loop: l, seed: o.Seed, codes: apply.NewCodes(nil), mutation: o.Mutation, plan: drawPlan(l), has: o.features(), force: o.Force, most: o.Length, only: o.Only, sources: map[string]func(){}, ending: map[int64]time.Duration{}}
	for _, e := range c.has.extremes {
		e(&c.plan)
	}
	servers, partitions := pick(l, []int{1, 3, 3, 3, 3, 5, 5}), pick(l, []int{3, 3, 3, 3, 1, 2, 5})
	if o.Servers > 0 {
		servers = o.Servers
	}
	if o.Partitions > 0 {
		partitions = o.Partitions
	}
	if c.plan.partitions > 0 {
		partitions = c.plan.partitions
	}
	c.partitions = partitions
	c.stats.Servers, c.stats.Partitions = servers, partitions
	c.keys = newKeyspace(partitions)
	c.level = version.Newest
	c.lowest = version.Oldest
	if c.has.users || o.Force {
		c.lowest = levelOfUsers
	}
	if c.has.versions && o.Seed%2 == 1 {
		c.level = c.lowest // as real clusters begin
	}
	if c.has.files {
		c.files = newFiles(c)
	}
	for i := range servers {
		c.servers = append(c.servers, newServer(c, uint64(i+1)))
	}
	for _, s := range c.servers {
		c.begins = append(c.begins, &pb.Member{ID: s.id})
	}
	if c.has.members {
		c.operator = newOperator(c)
		c.plan.lossy = false // whoever is lost may be needed in a configuration of another time
	}
	if c.has.versions {
		c.upgrader = c.busyUpgrader()
	}
	if c.has.users {
		c.keeper = &keeper{c: c}
	}
	if c.has.few {
		c.steward = newSteward(c)
	}
	if c.has.balance {
		c.balancer = c.madBalancer()
	}
	if c.has.resize {
		c.resizer = c.madResizer()
	}
	if c.has.alarms {
		c.alarms = c.busyAlarms()
	}
	if c.has.checks {
		c.checkTicks = checkTicks
		c.plan.lossy = false // one of three that is lost, and one that differs, leave no majority
	}
	if c.has.backups {
		c.saver = newSaver(c, o.Seed)
	}
	c.net = newNetwork(c)
	c.ledger = newLedger(c)
	c.drawClients(0)
	return c
}

// drawClients draws those that a run begins with, or begins anew. Sessions are numbered from the given one on.
func (c *cluster) drawClients(session int) {
	for i := range c.plan.clients {
		c.clients = append(c.clients, newClient(c, i))
	}
	for i := range c.plan.watchers {
		c.watchers = append(c.watchers, newWatcher(c, i))
	}
	if c.has.looked {
		c.drawLessees()
	}
	if c.has.sessions {
		for i := range 1 + c.loop.rng.IntN(3) {
			c.sessions = append(c.sessions, c.newSessionClient(session+i))
		}
	}
}
