package compose

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/client"
)

// calls carries requests to an etcd cluster, or to a view, each as a call.
//
// Concurrent calls have no order. So an update is called when all before it
// have been answered, and later requests when it has been. Reads that follow
// each other are called together; one whose answer is of a lower revision than
// that of an earlier one is read again. Callers that wait for their answers
// make their calls themselves, unless asynchronous ones are before them.
//
// Glances among them are on their way already, and keep their places.
type calls struct {
	l *link

	mu    sync.Mutex
	queue line // of what isn't answered, and not in the hands of run
	// running: run is at work. Nothing else takes from the queue then.
	running bool
	// ordered is the number of requests that are no local reads, also in the hands of run: no glance is
	// sent behind them.
	ordered atomic.Int32
}

const readsAtOnce = 64

func newCalls(l *link) *calls { return &calls{l: l} }

func (e *calls) alive() bool { return true }
func (e *calls) saw(int64)   {} // the link's floor is what counts
func (e *calls) seen() int64 { return 0 }
func (e *calls) close()      {}

// hurry has nothing to do: each call has its time.
func (e *calls) hurry(time.Time) {}

// idle reports that no asynchronous request is queued.
func (e *calls) idle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.running && e.queue.len() == 0
}

func (e *calls) send(ctx context.Context, r *request) error {
	r.glanced, r.changed = nil, false
	if g := e.glance(r); g != nil {
		g.send(ctx)
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.isLocal() && e.l.failed.Load() { // under mu: else unled may have been there before
		r.act = sendSynced // perhaps what led it was refused, just now
	}
	if !r.isLocal() {
		e.ordered.Add(1)
	}
	e.queue.push(queued{r: r})
	e.start()
	return nil
}

// start lets run work, unless the first waits for an answer that is on its way. It needs mu.
func (e *calls) start() {
	if !e.running && e.queue.len() > 0 && !e.queue.first().onItsWay() {
		e.running = true
		go e.run()
	}
}

func (e *calls) run() {
	for {
		e.mu.Lock()
		if out := e.handOut(); out != nil {
			e.mu.Unlock()
			out.resolve()
			continue
		}
		if e.queue.len() == 0 || e.queue.first().onItsWay() {
			e.running = false
			e.mu.Unlock()
			return
		}
		run := []*request{e.take()}
		for len(run) < readsAtOnce && run[0].isLocal() && e.queue.len() > 0 && e.queue.first().isLocal() {
			run = append(run, e.take())
		}
		e.mu.Unlock()
		local := run[0].isLocal()
		e.doAll(run)
		if !local {
			e.ordered.Add(-1) // behind what unled has done: a glance relies on that
		}
	}
}

// queued is a request that is not answered: one to be called, or a glance, which was sent.
type queued struct {
	r *request
	g *glance
}

func (q queued) onItsWay() bool { return q.g != nil && !q.g.came }

// isLocal reports that a call can be made beside other local reads.
func (q queued) isLocal() bool {
	if q.g != nil {
		return q.g.came
	}
	return q.r.isLocal()
}

// take removes the first. It needs mu.
func (e *calls) take() *request {
	q := e.queue.pop()
	if q.g != nil {
		return q.g.request()
	}
	return q.r
}

func (r *request) isLocal() bool { return r.kind != update && r.act == send }

// answer is what a call of a run has brought.
type answer struct {
	m   proto.Message
	err error
}

// doAll makes the calls of a run, and hands the answers out in its order. One that shows less than what was handed
// out before it is not handed out: the read is repeated.
func (e *calls) doAll(run []*request) {
	answers := make([]answer, len(run))
	var all sync.WaitGroup
	for i, r := range run[1:] {
		if r.glanced != nil {
			answers[i+1].m = r.glanced
			continue
		}
		all.Go(func() {
			growStack()
			answers[i+1].m, answers[i+1].err = e.do(context.Background(), r)
		})
	}
	answers[0].m, answers[0].err = e.do(context.Background(), run[0])
	all.Wait()
	for i, r := range run {
		a := &answers[i]
		if a.isBelow(e.l.floor.Load(), r) {
			e.repeat(run[i:], answers[i:])
		}
		if r.glanced != nil && a.m == proto.Message(r.glanced) {
			e.l.core.mirrored.Add(1)
		}
		m, err := e.finish(r, a.m, a.err)
		if err != nil && r.act != send {
			e.unled()
		}
		r.done(m, err)
	}
}

// growStack gives a new goroutine the stack that a call needs, as long as there is nothing on it: to grow it in steps
// below gRPC's frames is a quarter of what a read by call costs.
//
//go:noinline
func growStack() {
	var room [9 << 10]byte
	runtime.KeepAlive(&room)
}

func (a *answer) isBelow(floor int64, r *request) bool {
	return a.err == nil && r.isLocal() && revisionOf(a.m) < floor
}

// repeat makes the first call again, and with it those behind it that show less than another one of the run, which
// will have to be: together, since they have one deadline. Only of the first it is certain that its answer will do.
func (e *calls) repeat(run []*request, answers []answer) {
	newest := e.l.floor.Load()
	for _, a := range answers {
		if a.err == nil {
			newest = max(newest, revisionOf(a.m))
		}
	}
	var all sync.WaitGroup
	for i, r := range run {
		if a := &answers[i]; a.isBelow(newest, r) {
			e.l.core.stale.Add(1)
			all.Go(func() { a.m, a.err = e.again(context.Background(), r) })
		}
	}
	all.Wait()
}

// unled makes the local reads that were sent behind a request that should have led, and was refused, synced ones.
// (For what is sent from now on the algorithm does that.)
func (e *calls) unled() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, q := range e.queue.waiting() {
		if q.r != nil && q.r.isLocal() {
			q.r.act = sendSynced
			e.ordered.Add(1)
		}
	}
}

// now makes the call of a request at once.
func (e *calls) now(ctx context.Context, r *request) (proto.Message, error) {
	m, err := e.do(ctx, r)
	if err != nil && ctx.Err() != nil {
		err = &callerLeft{ctx.Err(), !errors.Is(err, client.ErrNotSent)}
	}
	return e.finish(r, m, err)
}

func (e *calls) finish(r *request, m proto.Message, err error) (proto.Message, error) {
	if err == nil {
		e.l.raise(revisionOf(m))
		if r.back != nil {
			m = r.back(m)
		}
	}
	if err = e.l.finish(r.kind, err); err != nil {
		return nil, err
	}
	return m, nil
}
