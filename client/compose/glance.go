package compose

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/internal/engine"
)

// glance is a read at a place of a mirror, over the session at which mirrors are read. It is sent at once,
// whatever is unanswered before it, and needs no goroutine: the session hands its answer over. If that doesn't do,
// because the key was changed behind the place, or the client has seen more of home since, the read is made as
// a call, in the glance's place among the others.
type glance struct {
	engine.HeldGet
	e    *calls
	over *readSession
	at   *place
	// key is what is asked for if r is nil; then the answer is waited for at the future.
	key string
	r   *request

	// Under e.mu. home is the answer when one came; nil if that doesn't do. changed: the place has to be
	// read at its revision.
	home          *pb.RangeResponse
	came, changed bool
	next          *glance // when it is handed out
}

// look prepares a glance; nil if the read has to be a call. The floor has all that the client has seen. It
// needs core.mu.
func (e *calls) look(r *route) *glance {
	v := e.l.view
	if v == nil {
		return nil
	}
	near := v.near.Load()
	over := near.session.Load()
	if e.ordered.Load() > 0 || over == nil || !over.alive() || !v.reachable() {
		return nil
	}
	if e.l.failed.Load() {
		return nil // perhaps what led it was refused, just now: that was known before it wasn't counted any more
	}
	p := near.places(r).young(v.home.Load(), e.l.floor.Load())
	if p == nil {
		p = e.older(near, r)
	}
	if p == nil || !p.isOver(over.connection()) {
		return nil
	}
	g := &glance{e: e, over: over, at: p}
	g.To = g
	return g
}

// older returns a place that isn't young any more, if a glance may use it, and sees to a younger one.
func (e *calls) older(near *nearby, r *route) *place {
	v := e.l.view
	places := near.places(r)
	p, renews := places.use(v.home.Load(), e.l.floor.Load(), time.Now())
	switch {
	case renews && p != nil:
		go v.renew(near, r)
	case renews:
		places.renewing.Store(false) // the call does it
	}
	return p
}

// glance is look for a request.
func (e *calls) glance(r *request) *glance {
	if r.mirrored == nil || !r.isLocal() {
		return nil
	}
	g := e.look(r.mirrored)
	if g != nil {
		g.r = r
	}
	return g
}

// send gives the glance its place. It needs core.mu, which keeps the queue in the order of the session.
func (g *glance) send(ctx context.Context) {
	e := g.e
	e.mu.Lock()
	e.queue.push(queued{g: g})
	e.mu.Unlock()
	var err error
	if g.r == nil {
		err = g.over.s.GetHeld(ctx, g.key, &g.HeldGet)
	} else {
		err = g.over.s.SendHeld(ctx, g.at.ask(g.r.message.(*pb.RangeRequest)), &g.HeldGet)
	}
	if err != nil {
		g.arrive(nil, false)
	}
}

// Answered is called by the session.
func (g *glance) Answered(got *clientv3.GetResponse, err error) {
	a, revision, keysOnly := (*pb.RangeResponse)(got), int64(0), false
	if g.r != nil {
		asked := g.r.message.(*pb.RangeRequest)
		revision, keysOnly = g.at.ask(asked).Revision, asked.KeysOnly
	}
	switch {
	case err != nil:
		if !isNoRevision(err) {
			_ = g.e.l.view.failed(err)
		}
		g.arrive(nil, false)
	case !g.at.isOver(g.over.connection()):
		g.arrive(nil, false) // perhaps of another stream
	case !g.at.shows(a, revision):
		g.arrive(nil, true)
	default:
		g.arrive(atHome(a, keysOnly, &g.at.mark), false)
	}
}

// arrive records what came, and hands out what needn't wait any more.
func (g *glance) arrive(home *pb.RangeResponse, changed bool) {
	e := g.e
	e.mu.Lock()
	g.came, g.home, g.changed = true, home, changed
	var out *glance
	if !e.running {
		out = e.handOut()
		e.start()
	}
	e.mu.Unlock()
	out.resolve()
}

// handOut takes the glances that have their answers from the head of the queue. They are to be resolved without
// the lock. It needs mu.
func (e *calls) handOut() (out *glance) {
	for last := &out; e.queue.len() > 0; {
		g := e.queue.first().g
		if g == nil || !g.came || g.home == nil {
			break
		}
		if g.home.Header.Revision < e.l.floor.Load() {
			e.l.core.stale.Add(1)
			g.home = nil
			break
		}
		e.l.raise(g.home.Header.Revision)
		e.queue.pop()
		*last, last = g, &g.next
	}
	return out
}

// resolve gives a chain of glances to those that wait for them.
func (g *glance) resolve() {
	for ; g != nil; g = g.next {
		g.e.l.core.mirrored.Add(1)
		_ = g.e.l.finish(read, nil)
		if g.r != nil {
			g.r.done(g.home, nil)
		} else {
			g.Resolve((*clientv3.GetResponse)(g.home), nil)
		}
	}
}

// request is the glance as one that is to be called, or whose answer is there. It needs mu.
func (g *glance) request() *request {
	r := g.r
	if r == nil {
		of := g.e.l.core.routes.find(g.key)
		r = &request{
			placement: placement{cluster: of.view, message: &pb.RangeRequest{Key: []byte(g.key)}, mirrored: of},
			kind:      read, act: send, epoch: g.e.l.epoch.Load(),
			done: func(m proto.Message, err error) {
				a, _ := m.(*pb.RangeResponse)
				g.Resolve((*clientv3.GetResponse)(a), err)
			},
		}
	}
	r.glanced, r.changed = g.home, g.changed
	return r
}
