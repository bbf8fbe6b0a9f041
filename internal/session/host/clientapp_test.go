package host

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	sdk "github.com/stoa-kv/stoa/client"
)

// app is a program that uses one session, from several goroutines.
type app struct {
	w    *clientWorld
	id   int
	rng  *rand.Rand
	c    *sdk.Client
	s    *sdk.Session
	feed *sdk.Feed
	wait sync.WaitGroup

	asks    []*ask // in the order of the session
	watches []*viewed
	revoked bool // its lease, by somebody else

	mu    sync.Mutex // guards what answers say, and the notes
	notes []note
	count int // of answers and closings of watches
}

// ask is a request. The synchronous ones of other goroutines have no place in the order.
type ask struct {
	kind     string
	level    sdk.Level
	key, end string
	value    string
	absent   bool   // a transaction's first key has to be
	other    string // the second key of a transaction
	loose    bool   // it has no place
	ahead    int    // requests that were sent before it
	until    int    // requests that were sent before it ended
	ephem    bool
	withPrev bool
	sel      selection // of a read

	floor int64 // the highest revision that anybody had been answered with
	shown int64 // the highest of an ordered event that had come
	token int64 // given to See

	done  bool
	err   error
	rev   int64
	kvs   []*mvccpb.KeyValue // that it read
	more  bool
	count int64
	prev  []*mvccpb.KeyValue
	says  bool // of a transaction: which way it went
	told  int  // notes that had come
	when  int  // among all answers and closings of watches
	at    time.Time
	heard time.Time
}

func (x *ask) String() string {
	return fmt.Sprintf("%s %s %s%s of level %v %v", x.kind, x.value, x.key, x.end, x.level, x.sel)
}

// note is a notification from the feed.
type note struct {
	sdk.Notification
	at time.Time
}

// viewed is a watch.
type viewed struct {
	*ask
	from     int64 // its start revision; 0: from its place in the order on
	filter   string
	w        *sdk.Watch
	opened   int64 // what had been applied anywhere when it was known to be open
	before   int64 // the highest revision of an ordered event that had come until then
	shut     int   // number of notes when it was closed; -1: it wasn't
	shutWhen int   // among all answers and closings of watches
	index    int   // of its request
}

// act is one step of an app.
type act struct {
	What  string
	X     uint32
	Pause int // ms behind it
}

var (
	clientDirs   = []string{"/p/", "/q/"} // in two partitions
	clientLevels = []sdk.Level{sdk.Strict, sdk.Causal, sdk.Fast}
)

const (
	calledKey = "w" // reads of it may be calls of the extension
	awaitKey  = "y" // watches of it may be, and bring the count then
)

func (a *app) one(n int) bool { return a.rng.IntN(n) == 0 }

func (a *app) level() sdk.Level { return clientLevels[a.rng.IntN(3)] }

func (a *app) key() string {
	return fmt.Sprintf("%sk%d", clientDirs[a.rng.IntN(2)], a.rng.IntN(3))
}

// span is a key, a directory, or both of them.
func (a *app) span() (key, end string) {
	switch d := clientDirs[a.rng.IntN(2)]; a.rng.IntN(3) {
	case 0:
		return a.key(), ""
	case 1:
		return d, clientv3.GetPrefixRangeEnd(d)
	default:
		return "/", "0"
	}
}

func spanOptions(end string) []clientv3.OpOption {
	if end == "" {
		return nil
	}
	return []clientv3.OpOption{clientv3.WithRange(end)}
}

// begin notes a request that is sent now. One goroutine sends those with a place.
func (a *app) begin(x *ask) *ask {
	a.drain()
	x.floor = a.w.ledger.answered.Load()
	x.at = time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range a.notes {
		if v := a.viewOf(n.Watch); v != nil && v.level != sdk.Fast && len(n.Events) > 0 {
			x.shown = max(x.shown, n.Events[len(n.Events)-1].Kv.ModRevision)
		}
	}
	x.ahead = len(a.asks)
	if !x.loose {
		a.asks = append(a.asks, x)
	} else {
		a.w.loosen(a, x)
	}
	return x
}

// viewOf needs the lock.
func (a *app) viewOf(w *sdk.Watch) *viewed {
	for _, v := range a.watches {
		if v.w == w {
			return v
		}
	}
	return nil
}

// drain takes the notifications that have come, and tells how many there are.
func (a *app) drain() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		n, ok := a.feed.TryNext()
		if !ok {
			return len(a.notes)
		}
		a.notes = append(a.notes, note{n, time.Now()})
	}
}

// answer waits for an answer, in a goroutine of its own.
func answer[T any](a *app, x *ask, f *sdk.Future[T], take func(T)) {
	a.wait.Go(func() {
		v, err := f.Wait(context.Background())
		a.answered(x, err, func() { take(v) })
	})
}

func (a *app) answered(x *ask, err error, take func()) {
	told := a.drain()
	a.mu.Lock()
	defer a.mu.Unlock()
	if x.done {
		a.w.found("app %d: %v is answered twice", a.id, x)
	}
	a.count++
	x.heard = time.Now()
	x.done, x.err, x.told, x.until, x.when = true, err, told, len(a.asks), a.count
	if err == nil {
		take()
		if x.level != sdk.Fast {
			raise(&a.w.ledger.answered, x.rev)
		}
	}
}

func (a *app) tookPut(x *ask) func(*clientv3.PutResponse) {
	return func(r *clientv3.PutResponse) {
		x.rev = r.Header.Revision
		if r.PrevKv != nil {
			x.prev = []*mvccpb.KeyValue{r.PrevKv}
		}
	}
}

func (a *app) tookGet(x *ask) func(*clientv3.GetResponse) {
	return func(r *clientv3.GetResponse) { x.took((*pb.RangeResponse)(r), r.Header.Revision) }
}

func (x *ask) took(r *pb.RangeResponse, rev int64) {
	x.rev, x.kvs, x.more, x.count = rev, r.Kvs, r.More, r.Count
}

func (a *app) value() string { return fmt.Sprintf("%d.%d", a.id, len(a.asks)) }

// run does one step.
func (a *app) run(do act) {
	a.rng = rand.New(rand.NewPCG(uint64(do.X), uint64(a.id)))
	switch do.What {
	case "put":
		a.put()
	case "delete":
		a.delete()
	case "txn":
		a.txn()
	case "look":
		a.look()
	case "get":
		a.get()
	case "call":
		a.call()
	case "batch":
		a.batch()
	case "sync":
		x := a.begin(&ask{kind: "sync"})
		answer(a, x, a.s.SyncAsync(), func(t sdk.Token) { x.rev = int64(t) })
	case "progress":
		a.progress()
	case "watch":
		a.watch()
	case "await":
		a.await()
	case "unwatch":
		a.unwatch()
	case "see":
		a.see()
	case "loose":
		a.loose()
	}
	time.Sleep(time.Duration(do.Pause) * time.Millisecond)
}

func (a *app) put() {
	x := a.begin(&ask{kind: "put", key: a.key(), value: a.value(), withPrev: a.one(4), ephem: a.one(8)})
	var opts []clientv3.OpOption
	if x.withPrev {
		opts = append(opts, clientv3.WithPrevKV())
	}
	if x.ephem {
		opts = append(opts, sdk.Ephemeral())
	}
	answer(a, x, a.s.PutAsync(x.key, x.value, opts...), a.tookPut(x))
}

func (a *app) delete() {
	x := &ask{kind: "delete", withPrev: a.one(2)}
	x.key, x.end = a.span()
	if x.end != "" && a.one(2) {
		x.key, x.end = a.key(), ""
	}
	a.begin(x)
	opts := spanOptions(x.end)
	if x.withPrev {
		opts = append(opts, clientv3.WithPrevKV())
	}
	answer(a, x, a.s.DeleteAsync(x.key, opts...), func(r *clientv3.DeleteResponse) {
		x.rev, x.prev, x.says = r.Header.Revision, r.PrevKvs, r.Deleted > 0
	})
}

// txn puts two keys if the first one is there, or isn't.
func (a *app) txn() {
	x := &ask{kind: "txn", key: a.key(), other: a.key(), value: a.value(), level: a.level()}
	for x.other == x.key {
		x.other = a.key()
	}
	op := ">"
	if x.absent = a.one(2); x.absent {
		op = "="
	}
	a.begin(x)
	then := []clientv3.Op{clientv3.OpPut(x.key, x.value), clientv3.OpPut(x.other, x.value)}
	f := a.s.At(x.level).TxnAsync([]clientv3.Cmp{clientv3.Compare(clientv3.Version(x.key), op, 0)}, then, []clientv3.Op{clientv3.OpGet(x.key)})
	x.level = sdk.Strict // it may write
	answer(a, x, f, func(r *clientv3.TxnResponse) {
		x.rev, x.says = r.Header.Revision, r.Succeeded
		if !r.Succeeded {
			x.kvs = r.Responses[0].GetResponseRange().Kvs
		}
	})
}

// look is a transaction that only reads.
func (a *app) look() {
	x := &ask{kind: "look", level: a.level(), sel: drawSelection(a.rng, a.w.ledger.answered.Load())}
	x.key, x.end = a.span()
	a.begin(x)
	f := a.s.At(x.level).TxnAsync(nil, []clientv3.Op{clientv3.OpGet(x.key, append(spanOptions(x.end), x.sel.options()...)...)}, nil)
	answer(a, x, f, func(r *clientv3.TxnResponse) { x.took(r.Responses[0].GetResponseRange(), r.Header.Revision) })
}

func (a *app) get() {
	x := &ask{kind: "get", level: a.level()}
	if x.key, x.end = a.span(); a.one(2) {
		x.sel = drawSelection(a.rng, a.w.ledger.answered.Load())
	}
	opts := append(spanOptions(x.end), x.sel.options()...)
	at := a.s.At(x.level)
	if a.one(5) {
		opts = append(opts, clientv3.WithSerializable())
		x.level = sdk.Fast
	}
	a.begin(x)
	answer(a, x, at.GetAsync(x.key, opts...), a.tookGet(x))
}

// call reads the key that an extension may be for.
func (a *app) call() {
	x := a.begin(&ask{kind: "call", key: calledKey, level: a.level()})
	answer(a, x, a.s.At(x.level).GetAsync(x.key), a.tookGet(x))
	switch a.rng.IntN(4) {
	case 0:
		a.put()
		a.breaks()
	case 1, 2: // what was a read is sent again as a call, or the other way round, and what was sent behind it has taken effect elsewhere
		y := a.begin(&ask{kind: "put", key: clientDirs[1] + "k0", value: a.value()})
		answer(a, y, a.s.PutAsync(y.key, y.value), a.tookPut(y))
		rtt := a.w.wires.slow + time.Millisecond
		time.Sleep(a.w.wires.between(2 * rtt))
		a.w.flip()
		time.Sleep(a.w.wires.between(rtt))
		a.w.cut()
	}
}

// breaks cuts a connection soon, perhaps: when something has just been sent.
func (a *app) breaks() {
	if !a.one(3) {
		return
	}
	after := time.Duration(a.rng.IntN(5000)) * time.Microsecond
	time.AfterFunc(after, a.w.cut)
}

// settle waits for all answers, but not for long.
func (a *app) settle() {
	for range 50 {
		a.mu.Lock()
		done := true
		for _, x := range a.asks {
			done = done && x.done
		}
		a.mu.Unlock()
		if done {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// batch sends some requests together, some of them encoded.
func (a *app) batch() {
	if a.one(2) {
		a.settle() // what is fast comes behind nothing then
	}
	defer a.breaks()
	b := a.s.At(sdk.Causal).Batch()
	var asks []*ask
	var waits []func()
	for range 1 + a.rng.IntN(4) {
		x := &ask{kind: "get", key: a.key()}
		var wait func()
		switch a.rng.IntN(5) {
		case 0:
			x.kind, x.value = "put", a.value()
			f := b.Put(x.key, x.value)
			wait = func() { answer(a, x, f, a.tookPut(x)) }
		case 1:
			x.level = sdk.Causal
			f := b.Get(x.key)
			wait = func() { answer(a, x, f, a.tookGet(x)) }
		default:
			x.key, x.end = a.span()
			read := &pb.RangeRequest{Key: []byte(x.key), RangeEnd: []byte(x.end), Serializable: !a.one(4)}
			if read.Serializable {
				x.level = sdk.Fast
			}
			body, _ := proto.Marshal(read)
			f := b.Encoded(stoapb.Kind_RANGE, body)
			wait = func() { answer(a, x, f, a.tookEncoded(x)) }
		}
		asks, waits = append(asks, a.begin(x)), append(waits, wait)
	}
	if err := b.Send(context.Background()); err != nil { // the futures have no answers
		for _, x := range asks {
			a.answered(x, err, nil)
		}
		return
	}
	for _, wait := range waits {
		wait()
	}
}

func (a *app) tookEncoded(x *ask) func([]byte) {
	return func(b []byte) {
		var r pb.RangeResponse
		if err := proto.Unmarshal(b, &r); err != nil {
			a.w.found("app %d: %v: %v", a.id, x, err)
			return
		}
		x.took(&r, r.Header.Revision)
	}
}

// soon runs what sends and waits in one, and returns when it has sent: time passes only when
// nothing else is to be done.
func (a *app) soon(do func()) {
	a.wait.Go(do)
	time.Sleep(time.Nanosecond)
}

func (a *app) progress() {
	x := a.begin(&ask{kind: "progress"})
	a.soon(func() {
		t, err := a.s.Progress(context.Background())
		a.answered(x, err, func() { x.rev = int64(t) })
	})
}

func (a *app) watch() {
	v := &viewed{ask: &ask{kind: "watch", level: a.level(), withPrev: a.one(2)}, shut: -1, index: len(a.asks)}
	v.key, v.end = a.span()
	opts := spanOptions(v.end)
	if v.withPrev {
		opts = append(opts, clientv3.WithPrevKV())
	}
	switch a.rng.IntN(6) {
	case 0, 1:
		v.from = max(1, a.w.ledger.answered.Load()-a.rng.Int64N(30))
		opts = append(opts, clientv3.WithRev(v.from))
	case 2:
		v.from = a.w.ledger.answered.Load() + a.rng.Int64N(10)
		opts = append(opts, clientv3.WithRev(max(1, v.from)))
		v.from = max(1, v.from)
	}
	switch a.rng.IntN(6) {
	case 0:
		v.filter = "put"
		opts = append(opts, clientv3.WithFilterPut())
	case 1:
		v.filter = "delete"
		opts = append(opts, clientv3.WithFilterDelete())
	}
	a.open(v, opts)
}

// await watches a key for which an extension may be: then the watch brings what is counted, from its own call on.
func (a *app) await() {
	a.open(&viewed{ask: &ask{kind: "await", key: awaitKey, level: a.level()}, shut: -1, index: len(a.asks)}, nil)
	if a.one(2) {
		a.breaks()
	}
}

func (a *app) open(v *viewed, opts []clientv3.OpOption) {
	a.begin(v.ask)
	a.mu.Lock()
	a.watches = append(a.watches, v)
	a.mu.Unlock()
	answer(a, v.ask, a.s.At(v.level).WatchAsync(a.feed, v.key, opts...), func(w *sdk.Watch) {
		v.w, v.opened = w, a.w.ledger.reached.Load()
		for _, n := range a.notes {
			if o := a.viewOf(n.Watch); (o == nil || o.level != sdk.Fast) && len(n.Events) > 0 {
				v.before = max(v.before, n.Events[len(n.Events)-1].Kv.ModRevision)
			}
		}
	})
}

func (a *app) unwatch() {
	a.mu.Lock()
	var open []*viewed
	for _, v := range a.watches {
		if v.w != nil && v.shut < 0 {
			open = append(open, v)
		}
	}
	a.mu.Unlock()
	if len(open) == 0 {
		return
	}
	v := open[a.rng.IntN(len(open))]
	x := a.begin(&ask{kind: "cancel"})
	x.done = true // nobody is told of its answer
	a.mu.Lock()
	a.count++
	v.shutWhen = a.count
	a.mu.Unlock()
	v.w.Close()
	told := a.drain()
	a.mu.Lock()
	defer a.mu.Unlock()
	v.shut = told
}

// see takes over what another session has seen.
func (a *app) see() {
	other := a.w.apps[a.rng.IntN(len(a.w.apps))]
	t := other.s.Token()
	a.s.See(t)
	x := a.begin(&ask{kind: "get", level: clientLevels[a.rng.IntN(2)], token: int64(t)})
	x.key, x.end = a.span()
	answer(a, x, a.s.At(x.level).GetAsync(x.key, spanOptions(x.end)...), a.tookGet(x))
}

// loose calls synchronously, with little time, while others send.
func (a *app) loose() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+a.rng.IntN(200))*time.Millisecond)
	x := &ask{loose: true, kind: "put", key: a.key(), value: "loose " + a.value(), level: a.level()}
	read := a.one(2)
	if read {
		x.kind, x.value = "get", ""
	} else {
		x.level = sdk.Strict
		x.value = strings.ReplaceAll(x.value, " ", fmt.Sprint(a.w.below(1<<30)))
	}
	a.begin(x)
	a.soon(func() {
		defer cancel()
		if read {
			r, err := a.s.At(x.level).Get(ctx, x.key)
			a.answered(x, err, func() { a.tookGet(x)(r) })
			return
		}
		r, err := a.s.Put(ctx, x.key, x.value)
		a.answered(x, err, func() { a.tookPut(x)(r) })
	})
}

// end ends the session, behind all that it has sent, and reports how that went.
func (a *app) end() {
	ctx, cancel := context.WithTimeout(context.Background(), clientPatience)
	defer cancel()
	a.run(act{What: "sync"})
	a.run(act{What: "progress"})
	all := make(chan struct{})
	go func() { a.wait.Wait(); close(all) }()
	select {
	case <-all:
	case <-ctx.Done():
		a.hangs()
		_ = a.c.Close()
		<-all
		return
	}
	err := a.s.Close(ctx)
	if err != nil && a.s.Err() != nil && !a.lost() && !a.barred(time.Now()) {
		a.w.found("app %d: closing its session: %v", a.id, err)
	}
	a.drain()
}

func (a *app) hangs() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, x := range a.asks {
		if !x.done {
			a.w.found("app %d: request %d of %d, %v, has no answer; its session: member %d, %v", a.id, i+1, len(a.asks), x, a.s.Member(), a.s.Err())
			return
		}
	}
}
