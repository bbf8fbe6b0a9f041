package compose

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/internal/engine"
)

// core is one logical client: it drives the algorithm, and keeps the requests that
// have to wait.
//
// A sender holds mu from asking the algorithm until the request has its place
// at its link. Answers never take mu, because a send may wait for space in a
// session while holding it, and answers free that space; they update counters
// (link) that the next holder of mu collects.
type core struct {
	// Counted where answers come, so far away from mu. mirrored: reads answered by mirrors; told: events.
	stale, failures, mirrored, told atomic.Int64

	cfg    Config
	routes *routing
	links  []*link
	watch  *watchdog
	// wants is set while a request waits: then answers stir wake.
	wants atomic.Bool
	wake  chan struct{}
	ctx   context.Context // ends with close
	end   context.CancelFunc

	mu      sync.Mutex
	algo    *algorithm
	queue   []*request
	pumping bool
	closed  bool
	feeds   map[*Feed]struct{}
	ran     *link         // where the latest request went
	led     bool          // the present run of updates was passed to the feeds
	space   chan struct{} // callers wait on it for space in the queue
}

// request is one that needs more than a place in a session: because it waits,
// or because its answer has to be processed.
type request struct {
	placement
	kind  kind
	act   action // once it is sent
	epoch uint64
	// by is the deadline for its cluster's answer, set when the request waits
	// for that cluster alone; zero as long as it waits for others.
	by time.Time
	// session, if it goes through one: it is not sent once that has ended.
	session *Session
	// done has the answer. It is called once, and must not block.
	done func(proto.Message, error)
	// What a glance has found (glance.go): the answer, or that the keys were changed behind the place.
	glanced *pb.RangeResponse
	changed bool
}

func newCore(cfg Config, routes *routing, clusters []*cluster, watch *watchdog) *core {
	c := &core{
		cfg: cfg, routes: routes, watch: watch, wake: make(chan struct{}, 1),
		algo: newAlgorithm(routes.targets()),
	}
	c.ctx, c.end = context.WithCancel(context.Background())
	for _, of := range clusters {
		c.links = append(c.links, &link{core: c, cluster: of})
	}
	for _, home := range routes.views {
		l := &link{core: c, cluster: clusters[home], view: new(view), twin: c.links[home]}
		l.view.near.Store(clusters[routes.local].nearby.first())
		l.twin.twin = l
		c.links = append(c.links, l)
	}
	return c
}

// collect passes the counted answers to the algorithm. It needs mu.
func (c *core) collect(target int) {
	if last := c.algo.last; last >= 0 && (last != target || c.algo.waiting > 0) {
		c.algo.responded(c.links[last].takeAnswers())
	}
	for l := c.links[target]; l != nil; l = l.twin {
		if l.failed.Load() {
			l.failed.Store(false)
			c.algo.failed(target)
		}
		if l.twin == c.links[target] {
			break
		}
	}
}

// submit gives a request its place. When the queue is full it waits for room, until
// ctx ends.
func (c *core) submit(ctx context.Context, r *request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.place(ctx, r)
}

// place needs mu, and has it when it returns.
func (c *core) place(ctx context.Context, r *request) error {
	if err := c.waitForRoom(ctx); err != nil {
		return err
	}
	c.aim(r)
	l := c.links[r.cluster]
	r.epoch = l.epoch.Load()
	c.collect(r.cluster)
	if !l.ready() {
		c.algo.hold()
		c.enqueue(r)
		return nil
	}
	r.act = c.algo.arrive(r.cluster, r.kind)
	if r.act == wait {
		c.enqueue(r)
		return nil
	}
	if err := l.send(ctx, r); err != nil {
		c.algo.withdrawn(r.cluster)
		return err
	}
	return nil
}

// direct gives a request a place that a caller's own call may take, if nothing is
// before it at an etcd cluster.
func (c *core) direct(r *request) *calls {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.links[r.cluster]
	e, ok := l.by.(*calls)
	if !ok || c.closed || c.algo.waiting > 0 || !e.idle() {
		return nil
	}
	c.collect(r.cluster)
	if c.algo.leads(r.cluster, r.kind) {
		return nil // what other goroutines send has to come behind it
	}
	if r.act = c.algo.admit(r.cluster, r.kind); r.act == wait {
		return nil
	}
	r.epoch = l.epoch.Load()
	c.sending(l, r.kind)
	l.count(r.kind)
	return e
}

// sending records the cluster of a request, for the feeds and for the other way to the
// same cluster. It needs mu.
func (c *core) sending(l *link, k kind) {
	if c.ran != l {
		c.ran, c.led = l, false
		if l.twin != nil {
			l.saw(l.twin.own())
		}
	}
	if k == update && !c.led && len(c.feeds) > 0 {
		c.depend(l.cluster.at)
	}
}

// quick gives a request of one key its place in a session, if it needn't wait:
// act is the way to send it. It needs mu.
func (c *core) quick(r *route, k kind) (ch *channel, act action) {
	ch, ok := c.links[r.cluster].by.(*channel)
	if ok && !c.closed && c.algo.waiting == 0 && ch.alive() {
		c.collect(r.cluster)
		if act = c.algo.admit(r.cluster, k); act != wait {
			c.sending(ch.l, k)
			return ch, act
		}
	}
	return nil, wait
}

// quickGlance reads one key at a place of a mirror; nil if the read needs more than that. It needs mu.
func (c *core) quickGlance(ctx context.Context, r *route, key string) (*link, *engine.Future[*clientv3.GetResponse]) {
	l := c.links[r.view]
	e, ok := l.by.(*calls)
	if !ok || c.closed || c.algo.waiting > 0 {
		return nil, nil
	}
	l.seen()
	g := e.look(r)
	if g == nil {
		return nil, nil
	}
	c.collect(r.view)
	if c.algo.leads(r.view, read) || c.algo.admit(r.view, read) == wait {
		return nil, nil
	}
	c.sending(l, read)
	l.sent.Add(1)
	g.key = key
	g.send(ctx)
	return l, g.Awaited()
}

// homeward reports that a read of mirrored keys goes home, behind what the client has in flight there, instead
// of waiting for that: an update, which the mirror won't have at once, or anything while the mirror isn't known to
// have what the client has seen. It needs mu.
func (c *core) homeward(r *route) bool {
	home, l := c.links[r.cluster], c.links[r.view]
	switch {
	case home.sent.Load() == home.got.Load() || !home.ready():
		return false
	case home.writes():
		return true
	}
	near := l.view.near.Load()
	lags, renews := near.places(r).lags(l.seen(), time.Now())
	if renews {
		go l.view.renew(near, r)
	}
	return lags
}

// aim decides where a read of mirrored keys goes. It needs mu.
func (c *core) aim(r *request) {
	if r.mirrored == nil {
		return
	}
	to := r.mirrored.view
	if c.homeward(r.mirrored) {
		to = r.mirrored.cluster
	}
	if r.cluster != to {
		r.cluster, r.epoch = to, c.links[to].epoch.Load()
	}
}

// saw records that the client has seen a state of a cluster other than by an
// answer.
func (c *core) saw(target int, revision int64) {
	c.mu.Lock()
	l := c.links[target]
	l.saw(revision)
	if l.twin != nil {
		l.twin.saw(revision)
	}
	c.algo.saw(target)
	c.led = false
	c.mu.Unlock()
}

// unlead makes the next read of every cluster a synced one.
func (c *core) unlead() {
	for _, l := range c.links {
		l.failed.Store(true)
	}
}

func (c *core) stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.algo
	return Stats{
		Reads: a.reads, Updates: a.updates, Switches: a.switches, Syncs: a.syncs, Resyncs: a.resyncs, Waits: a.waits,
		Stale: c.stale.Load(), Mirrored: c.mirrored.Load(), MirroredEvents: c.told.Load(), Failures: c.failures.Load(),
	}
}

func (c *core) close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	c.end()
	left := c.queue
	c.queue = nil
	for range left {
		c.algo.dropped()
	}
	c.mu.Unlock()
	for _, r := range left {
		r.done(nil, ErrClosed)
	}
	var all sync.WaitGroup
	for _, l := range c.links {
		all.Go(l.close) // each may take Timeout
	}
	all.Wait()
}
