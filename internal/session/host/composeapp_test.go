package host

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	sdk "github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/compose"
)

// composedApp is a program that uses a composition from one goroutine.
type composedApp struct {
	w    *composedWorld
	id   int
	rng  *rand.Rand
	root *compose.Client
	c    *compose.Client // one logical client; another one after it was left
	fork int64           // its number
	feed *compose.Feed
	wait sync.WaitGroup

	far    *farClient // in place of all those, if the composition's clients are in sidecars
	shared *farClient // with others
	at     *simSidecar
	stream *farFeed

	mu      sync.Mutex // guards what answers say
	deeds   []*deed
	watches []*composedWatch
	notes   []composedNote

	held   *composedLease
	leases []*composedLease
	looks  []*composedLook

	tails     []*composedTail
	following sync.WaitGroup
}

func (w *composedWorld) newComposedApp(id int, root *compose.Client) *composedApp {
	a := &composedApp{w: w, id: id, root: root}
	if w.plan.Sidecars > 0 {
		at := w.plan.At[id]
		a.at, a.far, a.shared = w.sidecars[at], w.far[at], w.far[at]
		if w.plan.Alone[id] {
			a.far = w.newFarClient(a.at)
		}
	}
	a.begin()
	return a
}

// begin takes a new client.
func (a *composedApp) begin() {
	if a.fork = a.w.forks.Add(1); a.far != nil {
		return
	}
	a.c = a.root.Fork()
	a.feed = a.c.NewFeed()
}

func (a *composedApp) one(n int) bool { return a.rng.IntN(n) == 0 }

func (a *composedApp) some(of ...string) string { return of[a.rng.IntN(len(of))] }

// key is one of a client's; seldom one that is none.
func (a *composedApp) key() string {
	switch a.rng.IntN(20) {
	case 0:
		return "/none"
	case 1:
		return a.some("/s0//stoa/kept", "/s0//stoa/x")
	case 2, 3, 4:
		return "u/" + a.some("p", "q")
	}
	return a.unlocked().prefix + a.some("p/a", "q/a", "q/b")
}

// unlocked is a route whose keys are in no transactions over clusters.
func (a *composedApp) unlocked() road {
	for {
		if r := a.w.roads[a.rng.IntN(len(a.w.roads))]; !r.locks {
			return r
		}
	}
}

// point is where a range of a route may begin or end.
func (a *composedApp) point(r road) string {
	return a.some(r.prefix, r.prefix, r.prefix+"\x00", r.prefix+"p/", r.prefix+"p0", r.prefix+"q/b", r.prefix+"q0")
}

// span is a range of one route, or of whatever there is.
func (a *composedApp) span() (from, to string) {
	if a.one(4) {
		points := []string{"\x00", "/", "0", "/c0/n", "/c0/n0", "v"}
		for _, r := range a.w.roads {
			points = append(points, r.prefix, prefixEnd(r.prefix))
		}
		from, to = a.some(points...), a.some(points[1:]...) // a zero byte would be none
		return from, to
	}
	r := a.w.roads[a.rng.IntN(len(a.w.roads))]
	if a.one(2) {
		return r.prefix, prefixEnd(r.prefix)
	}
	return a.point(r), a.point(r)
}

// run does one step.
func (a *composedApp) run(do act) {
	a.rng = rand.New(rand.NewPCG(uint64(do.X), uint64(a.id)))
	switch do.What {
	case "put":
		d := &deed{kind: "put", key: a.key()}
		a.send(d, func(c asks, ctx context.Context) (clientv3.OpResponse, error) {
			return done(c.Put(ctx, d.key, d.value))
		}, func(c *compose.Client) func() { return answers(a, d, c.PutAsync(d.key, d.value)) })
	case "get", "synced":
		if a.far != nil && do.What == "synced" {
			a.run(act{What: "put", X: do.X})
		}
		d := &deed{kind: "get", key: a.key(), synced: do.What == "synced" || a.far != nil && a.one(2)}
		a.send(d, func(c asks, ctx context.Context) (clientv3.OpResponse, error) {
			return done(c.Get(ctx, d.key, a.level(d)...))
		},
			func(c *compose.Client) func() { return answers(a, d, c.GetAsync(d.key)) })
	case "range":
		a.lookAt()
	case "script":
		a.perform()
	case "delete":
		d := &deed{kind: "delete", key: a.key()}
		a.op(d, clientv3.OpDelete(d.key, clientv3.WithPrevKV()))
	case "delete range":
		d := &deed{kind: "delete"}
		r := a.unlocked()
		d.key, d.end = a.point(r), a.point(r)
		a.op(d, clientv3.OpDelete(d.key, clientv3.WithRange(d.end), clientv3.WithPrevKV()))
	case "txn":
		a.txn()
	case "sync":
		if a.far != nil {
			return
		}
		d := &deed{kind: "sync", key: a.w.clusters[a.rng.IntN(len(a.w.clusters))].name}
		a.send(d, func(c asks, ctx context.Context) (clientv3.OpResponse, error) {
			return clientv3.OpResponse{}, a.c.Sync(ctx, d.key)
		}, nil)
	default:
		a.also(do.What)
	}
	time.Sleep(time.Duration(do.Pause) * time.Millisecond)
}

// also does a step that isn't one request of a few keys.
func (a *composedApp) also(what string) {
	switch what {
	case "refused":
		a.refused()
	case "watch":
		a.watch()
	case "hold":
		a.hold()
	case "put held":
		a.putHeld()
	case "follow":
		a.follow()
	case "unfollow":
		a.unfollow()
	case "progress":
		a.progress()
	case "stay":
		a.stay()
	case "take":
		a.take(20*time.Millisecond, 1+a.rng.IntN(10))
	case "put locked":
		a.putAlone("t" + a.some("0", "1") + "/z")
	case "put extended":
		a.putAlone(standInPuts + a.some("a", "b"))
	case "across", "pair":
		a.across(what == "across")
	case "leave":
		if a.one(3) {
			a.leave()
		}
	case "cut":
		after := time.Duration(a.rng.IntN(5000)) * time.Microsecond
		c := a.w.clusters[a.rng.IntN(len(a.w.clusters))]
		time.AfterFunc(after, func() {
			if !a.w.calm.Load() {
				c.cut()
			}
		})
	}
}

// note records a request that is made now.
func (a *composedApp) note(d *deed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d.n, d.fork, d.begun = a.w.next(), a.fork, a.w.now()
	d.synced = d.synced || a.far != nil && d.kind != "get"
	d.value = fmt.Sprintf("%d.%d", a.id, d.n)
	a.deeds = append(a.deeds, d)
}

// op makes a request that is neither a put nor a get of one key.
func (a *composedApp) op(d *deed, op clientv3.Op) {
	a.send(d, func(c asks, ctx context.Context) (clientv3.OpResponse, error) { return c.Do(ctx, op) },
		func(c *compose.Client) func() { return answers(a, d, c.DoAsync(op)) })
}

// send makes a request, and waits for the answer or doesn't.
func (a *composedApp) send(d *deed, call func(asks, context.Context) (clientv3.OpResponse, error), async func(*compose.Client) func()) {
	if a.far != nil {
		a.note(d)
		way := a.way()
		a.call(d, func(ctx context.Context) (clientv3.OpResponse, error) { return call(way, ctx) })
		return
	}
	c := a.c
	if d.by != nil {
		c = d.by
	}
	if d.synced {
		c = c.Synced()
	}
	a.note(d)
	if async != nil && !a.one(3) {
		a.wait.Go(async(c))
		return
	}
	a.call(d, func(ctx context.Context) (clientv3.OpResponse, error) { return call(c, ctx) })
}

// call waits for the answer, seldom for a short time only.
func (a *composedApp) call(d *deed, call func(context.Context) (clientv3.OpResponse, error)) {
	limit := composedHang
	if d.left = a.one(6); d.left {
		limit = time.Duration(a.rng.IntN(200)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), deedKey{}, farDeed{a, d}), limit)
	defer cancel()
	r, err := call(ctx)
	if err != nil && ctx.Err() != nil && !d.left {
		a.w.found("app %d: %v hangs", a.id, d)
	}
	a.answered(d, r, err)
}

// done makes etcd's one type of all answers.
func done[R interface{ OpResponse() clientv3.OpResponse }](r R, err error) (clientv3.OpResponse, error) {
	if err != nil {
		return clientv3.OpResponse{}, err
	}
	return r.OpResponse(), nil
}

// answers waits for an answer, in a goroutine of its own.
func answers[R any](a *composedApp, d *deed, f *sdk.Future[R]) func() {
	return func() {
		v, err := f.Wait(context.Background())
		var r clientv3.OpResponse
		if err == nil {
			switch v := any(v).(type) {
			case *clientv3.PutResponse:
				r = v.OpResponse()
			case *clientv3.GetResponse:
				r = v.OpResponse()
			case clientv3.OpResponse:
				r = v
			}
		}
		a.answered(d, r, err)
	}
}

func (a *composedApp) answered(d *deed, r clientv3.OpResponse, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d.heard != 0 {
		a.w.found("app %d: %v is answered twice", a.id, d)
	}
	d.heard, d.ended, d.err = a.w.next(), a.w.now(), a.told(err)
	switch {
	case err != nil:
	case r.Put() != nil:
		d.rev = r.Put().Header.Revision
	case r.Get() != nil:
		d.rev, d.kvs, d.more, d.count = r.Get().Header.Revision, r.Get().Kvs, r.Get().More, r.Get().Count
	case r.Del() != nil:
		d.rev, d.kvs, d.deleted = r.Del().Header.Revision, r.Del().PrevKvs, r.Del().Deleted
	case r.Txn() != nil:
		d.rev, d.says, d.answer = r.Txn().Header.Revision, r.Txn().Succeeded, (*pb.TxnResponse)(r.Txn())
		for _, one := range r.Txn().Responses {
			if got := one.GetResponseRange(); got != nil {
				d.kvs = append(d.kvs, got.Kvs...)
			}
		}
	}
}

// watch opens watches of a range.
func (a *composedApp) watch() {
	from, to := a.span()
	cut := a.w.roads.stretches(from, to)
	if from >= to || len(cut) == 0 {
		return
	}
	opts := []clientv3.OpOption{clientv3.WithRange(to)}
	asked := int64(0)
	if len(cut) == 1 && cut[0].from == from && cut[0].to == to && a.one(3) {
		asked = max(1, a.w.clusters[cut[0].road.cluster].ledger.reached.Load()+int64(a.rng.IntN(20)-15))
		opts = append(opts, clientv3.WithRev(asked))
	}
	if a.far != nil {
		a.watchFar(from, to, asked, cut)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), composedHang)
	defer cancel()
	all, err := a.feed.Watch(ctx, from, opts...)
	var of *compose.ClusterError
	switch {
	case err == nil && len(all) != len(cut):
		a.w.found("app %d: there are %d watches from %q to %q, not %v", a.id, len(all), from, to, cut)
	case err == nil:
		for i, one := range all {
			a.watches = append(a.watches, &composedWatch{opened: one, n: a.w.next(), fork: a.fork, asked: asked, stretch: cut[i]})
		}
	case ctx.Err() != nil:
		a.w.found("app %d: the opening of a watch from %q to %q hangs", a.id, from, to)
	case !errors.As(err, &of) && !errors.Is(err, compose.ErrReserved) && !strings.HasSuffix(err.Error(), "watcher range is empty"):
		a.w.found("app %d: the opening of a watch from %q to %q fails with %v", a.id, from, to, err)
	}
}

// take takes notifications, so many at most, each of which has to come in a time.
func (a *composedApp) take(within time.Duration, most int) (last error) {
	if a.far != nil {
		return a.takeFar(within, most)
	}
	for range most {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		n, err := a.feed.Next(ctx)
		cancel()
		if err != nil {
			return err
		}
		a.notes = append(a.notes, composedNote{n, a.w.next(), a.fork, a.watchOf(n.Watch)})
	}
	return nil
}

// watchOf is the watch that one of the feed's is, nil if there is none.
func (a *composedApp) watchOf(one *compose.FeedWatch) *composedWatch {
	for _, v := range a.watches {
		if v.opened == opened(one) {
			return v
		}
	}
	return nil
}

// leave closes the client, or if it shares connections with no others all that it is made of, and goes on with another one.
func (a *composedApp) leave() {
	if a.far != nil {
		a.leaveFar()
		return
	}
	left, feed := a.c, a.feed
	var beside sync.WaitGroup
	for range a.rng.IntN(3) { // others use it meanwhile
		beside.Go(func() {
			a.w.within("a read beside Close", func() {
				_, _ = left.Txn(context.Background()).Then(clientv3.OpGet("t0/x"), clientv3.OpGet("t1/x")).Commit()
				_, _ = left.Get(context.Background(), "t0/x")
			})
		})
	}
	time.Sleep(time.Duration(a.rng.IntN(4)) * time.Millisecond)
	if a.w.plan.Alone[a.id] && a.one(2) {
		a.w.within("the end of a client", func() { _ = a.root.Close() })
		a.root = a.w.composition()
	} else {
		a.w.within("the end of a fork", func() { _ = left.Close() })
	}
	beside.Wait()
	a.abandon()
	a.settled("its client is closed")
	a.endTails(false)
	begun := time.Now()
	if _, err := left.Put(context.Background(), "/c0/p/a", "closed"); !errors.Is(err, compose.ErrClosed) {
		a.w.found("app %d: a put behind Close: %v", a.id, err)
	}
	if d := time.Since(begun); d > 0 {
		a.w.found("app %d: a put behind Close takes %v", a.id, d)
	}
	if err := a.take(composedTimeout, 1<<20); !errors.Is(err, compose.ErrFeedClosed) {
		a.w.found("app %d: a feed behind Close: %v", a.id, err)
	}
	feed.Close()
	a.count()
	a.begin()
}

// count takes over what the client has counted.
func (a *composedApp) count() {
	if a.far != nil {
		return
	}
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	a.w.counts.Mirrored += int(a.c.Stats().Mirrored)
	a.w.counts.Told += int(a.c.Stats().MirroredEvents)
}

// settled waits until all is answered.
func (a *composedApp) settled(why string) {
	all := make(chan struct{})
	go func() {
		a.wait.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-time.After(composedHang):
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, d := range a.deeds {
			if d.heard == 0 {
				a.w.found("app %d: %s, and no answer to %v", a.id, why, d)
			}
		}
		panic(strings.Join(a.w.failures, "\n") + a.w.story() + stacks())
	}
}

// finish waits for all answers and events, and finds that all works again.
func (a *composedApp) finish() {
	a.settled("nothing breaks any more")
	for i, c := range a.w.clusters {
		if d := (&deed{kind: "sync", key: c.name}); a.far == nil {
			a.again(d, func(ctx context.Context) (clientv3.OpResponse, error) {
				return clientv3.OpResponse{}, a.c.Sync(ctx, d.key)
			})
		}
		e := &deed{kind: "put", key: fmt.Sprintf("/c%d/p/a", i)}
		a.again(e, func(ctx context.Context) (clientv3.OpResponse, error) { return done(a.asks().Put(ctx, e.key, e.value)) })
	}
	for _, key := range []string{"x", "y"} { // nothing stays locked
		d := pairOf(key)
		a.again(d, func(ctx context.Context) (clientv3.OpResponse, error) { return readPair(a.asks(), ctx, d) })
	}
	if err := a.take(2*composedTimeout, 1<<20); !errors.Is(err, compose.ErrFeedClosed) && !errors.Is(err, context.DeadlineExceeded) {
		a.w.found("app %d: the feed ends with %v", a.id, err)
	}
	if err := a.take(0, 1); len(a.tails) > 0 && errors.Is(err, compose.ErrFeedClosed) {
		time.Sleep(2 * composedTimeout) // the feed has no watches, so nobody has waited
	}
	a.settleLease()
	a.stream.finish()
	a.endTails(true)
	a.count()
}

// again makes a call that has to succeed.
func (a *composedApp) again(d *deed, call func(context.Context) (clientv3.OpResponse, error)) {
	a.note(d)
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), deedKey{}, farDeed{a, d}), composedHang)
	defer cancel()
	r, err := call(ctx)
	a.answered(d, r, err)
	if err != nil {
		a.w.found("app %d: nothing breaks any more, and %v fails with %v", a.id, d, err)
	}
}
