package sidecar

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/sidecar/cache"
	"github.com/stoa-kv/stoa/internal/sidecar/front"
	"github.com/stoa-kv/stoa/internal/sidecar/relay"
)

// caches answer ranges of some prefixes from the sidecar's memory. Their contents are kept by watches among
// those of local clients (watches.hub), whose lock guards them.
type caches struct {
	up       *upstream
	question *question
	lanes    *lanes // nil: none
	ws       *watches
	m        *metrics
	lg       *zap.Logger

	prefixes []*cached
	// registry is where extensions are registered: while there are any, or they aren't known, a read
	// may be another's matter than the keys'.
	registry *cached
	budget   *cache.Budget
	point    joined[int64]

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	moved chan struct{} // closed at the next change of any contents; nil if nothing waits. Guarded by watches.mu
}

// cached is one prefix.
type cached struct {
	of     *caches
	name   string
	prefix *cache.Prefix
	ended  bool          // its watch has; guarded by watches.mu
	wake   chan struct{} // there is something to do for keep
}

func openCaches(c Config, up *upstream, q *question, ls *lanes, ws *watches, m *metrics) *caches {
	cs := &caches{up: up, question: q, lanes: ls, ws: ws, m: m, lg: c.Logger, budget: &cache.Budget{Limit: c.CacheMemory}}
	cs.point.read = cs.readPoint
	cs.ctx, cs.cancel = context.WithCancel(context.Background())
	cs.registry = cs.open(string(extensions))
	for _, p := range c.Cache {
		cs.prefixes = append(cs.prefixes, cs.open(p))
	}
	for _, p := range cs.all() {
		cs.wg.Go(p.keep)
	}
	cs.wg.Go(cs.verify)
	return cs
}

func (cs *caches) open(prefix string) *cached {
	end := clientv3.GetPrefixRangeEnd(prefix)
	return &cached{of: cs, name: prefix, prefix: cache.New([]byte(prefix), []byte(end), cs.budget), wake: make(chan struct{}, 1)}
}

func (cs *caches) all() []*cached { return append([]*cached{cs.registry}, cs.prefixes...) }

func (cs *caches) close() {
	cs.cancel()
	cs.wg.Wait()
}

const (
	// patient is how long a read waits for a question; then a member answers it.
	patient = 500 * time.Millisecond
	// verifyEvery is how often the cluster is asked whether all is as it was: the user's permissions, and
	// the history. Serializable reads don't ask.
	verifyEvery = 10 * time.Second
)

// read answers a range from memory. It returns false if a member has to.
func (cs *caches) read(ctx context.Context, in []byte) (answer []byte, ok bool) {
	r := new(pb.RangeRequest)
	if !kvwire.ReadRange(in, r) {
		return nil, false
	}
	p := cs.covering(r)
	if p == nil {
		return nil, false
	}
	v := p.prefix.View()
	switch {
	case !cs.plain():
		v = nil
	case v != nil && !r.Serializable:
		v = cs.strict(ctx, p)
	case v != nil:
		if v, answer = cs.newest(ctx, p, v, r); answer != nil {
			cs.m.cacheForwarded.Inc()
			return answer, true
		}
	}
	if v == nil {
		cs.m.cacheForwarded.Inc()
		return nil, false
	}
	cs.m.cacheServed(r.Serializable).Inc()
	return v.Answer(r), true
}

// newest is for a serializable read, which shows all that its connection has seen: the view of a prefix that
// there is or, if that is older, the one that comes, or a member's answer. If no member can be reached, or none
// can tell in time, it is the one that there is: such a read is for going on then, and the revision in its header
// says how old it is. Neither: a member has to say what is wrong.
func (cs *caches) newest(ctx context.Context, p *cached, v *cache.View, r *pb.RangeRequest) (newer *cache.View, answer []byte) {
	connection := front.Of(ctx)
	seen := connection.Seen()
	if v.Revision() >= seen {
		return v, nil
	}
	ctx, cancel := timed(ctx)
	defer cancel()
	for ctx.Err() == nil && cs.up.reachable() {
		if next := cs.atLeast(ctx, p, seen); next != nil {
			return next, nil
		}
		answer, err := cs.linearizable(ctx, r)
		switch {
		case err == nil:
			if rev := revisionOf(pb.KV_Range_FullMethodName, answer); rev < seen {
				connection.Forget(rev) // a backup was restored
			}
			return nil, answer
		case status.Code(err) != codes.Unavailable && ctx.Err() == nil:
			return nil, nil
		}
	}
	return v, nil
}

// atLeast waits for a view that isn't older; nil if it takes long.
func (cs *caches) atLeast(ctx context.Context, p *cached, rev int64) *cache.View {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	err := cs.reach(ctx, rev, p)
	v := p.prefix.View()
	if err != nil || v == nil || v.Revision() < rev { // there was a gap meanwhile
		return nil
	}
	return v
}

// linearizable has a member answer a serializable read with the latest.
func (cs *caches) linearizable(ctx context.Context, r *pb.RangeRequest) ([]byte, error) {
	conn, err := cs.up.conn(false)
	if err != nil {
		return nil, err
	}
	r = proto.CloneOf(r)
	r.Serializable = false
	body, err := proto.Marshal(r)
	if err != nil {
		return nil, err
	}
	var out frame
	err = conn.Invoke(ctx, pb.KV_Range_FullMethodName, &frame{body}, &out, invokeOptions...)
	return out.data, err
}

// serving reports whether serializable reads of all prefixes are answered.
func (cs *caches) serving() bool {
	for _, p := range cs.prefixes {
		if p.prefix.View() == nil {
			return false
		}
	}
	return cs.plain()
}

func (cs *caches) covering(r *pb.RangeRequest) *cached {
	for _, p := range cs.prefixes {
		if p.prefix.Covers(r) {
			return p
		}
	}
	return nil
}

// plain reports whether there are no extensions, as far as is known.
func (cs *caches) plain() bool {
	v := cs.registry.prefix.View()
	return v != nil && v.Len() == 0
}

// strict is a view that has all that the cluster had at some time after the call; nil if that can't be
// told in time.
func (cs *caches) strict(ctx context.Context, p *cached) *cache.View {
	if cs.point.late(patient) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	rev, err := cs.point.ask(ctx)
	if err != nil {
		return nil
	}
	v := p.prefix.View()
	if v == nil || v.Revision() < rev { // there was a gap meanwhile
		return nil
	}
	return v
}

// Begin implements relay.Follower.
func (p *cached) Begin(rev int64) {
	p.prefix.Begin(rev)
	p.stir()
}

// Take implements relay.Follower.
func (p *cached) Take(header *pb.ResponseHeader, events []relay.Event) {
	p.prefix.Take(header, events)
	if p.prefix.TooLarge() {
		signal(p.wake)
	}
	p.of.move()
}

// End implements relay.Follower.
func (p *cached) End(reason string) {
	p.of.lg.Warn("a cached prefix is not watched any more", zap.String("prefix", p.name), zap.String("reason", reason))
	p.prefix.End(reason)
	p.ended = true
	p.stir()
}

func (p *cached) stir() {
	signal(p.wake)
	p.of.move()
}

// move wakes those who wait for contents to change.
func (cs *caches) move() {
	if cs.moved != nil {
		close(cs.moved)
		cs.moved = nil
	}
}

// change is closed at the next one.
func (cs *caches) change() <-chan struct{} {
	if cs.moved == nil {
		cs.moved = make(chan struct{})
	}
	return cs.moved
}
