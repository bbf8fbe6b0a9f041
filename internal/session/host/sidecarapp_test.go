package host

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// sidecarApp is a program that uses a sidecar by etcd's client.
type sidecarApp struct {
	w    *sidecarWorld
	id   int
	own  bool // it is a user by itself
	rng  *rand.Rand
	at   *simSidecar
	c    *clientv3.Client
	wait sync.WaitGroup // of calls

	mu       sync.Mutex // guards what answers and watches say
	calls    []*sidecarCall
	watches  []*sidecarWatch
	streams  []*sidecarStream
	queues   []*queueCall
	observed []*observed
	renewals *renewals // the latest stream of keep-alives
	keeping  []*renewals
	dialed   []time.Duration // when its connections were made
	watching sync.WaitGroup
}

// sidecarCall is a request and its answer.
type sidecarCall struct {
	kind     string
	n        int64 // in the order in which all things happened
	key, end string
	value    string
	other    string // the second key of a transaction
	lease    clientv3.LeaseID
	absent   bool // the first has to be
	left     bool // the caller's context may have ended
	local    bool // serializable
	limit    int64
	counts   bool // keys only
	descends bool
	floor    int64 // what anybody had been told when it was made

	begun, ended time.Duration
	heard        int64 // number of the answer; 0: none yet
	err          error
	rev          int64
	kvs          []*mvccpb.KeyValue // that were read, or deleted
	count        int64              // that were found, or deleted
	more         bool
	says         bool // of a transaction: which way it went

	effect int64 // its revision, found by check
}

func (d *sidecarCall) String() string {
	end := ""
	if d.end != "" {
		end = fmt.Sprintf("..%q", d.end)
	}
	local := ""
	if d.local {
		local = "serializable "
	}
	return fmt.Sprintf("%s%s %q%s %s %s, [%v, %v]: at %d, %d keys, %v", local, d.kind, d.key, end, d.other, strings.TrimRight(d.value, "."), d.begun, d.ended, d.rev, len(d.kvs), d.err)
}

func (d *sidecarCall) writes() bool { return d.kind == "put" || d.kind == "delete" || d.kind == "txn" }

func (w *sidecarWorld) newSidecarApp(id int, at *simSidecar) *sidecarApp {
	a := &sidecarApp{w: w, id: id, own: w.plan.Users && w.plan.Own[id], at: at}
	dial := func(ctx context.Context, to string) (net.Conn, error) {
		c, err := w.local.dial(ctx, to)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.dialed = append(a.dialed, w.now())
		return c, err
	}
	cfg := clientv3.Config{
		Endpoints: []string{at.name}, DialTimeout: time.Second, DialOptions: []grpc.DialOption{grpc.WithContextDialer(dial), tryOnce()}, Logger: zap.NewNop(),
	}
	if a.own {
		cfg.Username, cfg.Password = a.user(), clientPassword
	}
	require.Eventually(w.t, func() (ok bool) { // the sidecar's user may not be authenticated yet
		var err error
		a.c, err = clientv3.New(cfg)
		return err == nil
	}, sidecarHang, 100*time.Millisecond)
	return a
}

func (a *sidecarApp) one(n int) bool { return a.rng.IntN(n) == 0 }

func (a *sidecarApp) some(of ...string) string { return of[a.rng.IntN(len(of))] }

// key is one that the sidecar's clients have a name for.
func (a *sidecarApp) key() string {
	for {
		if name, ok := a.at.here(a.some("/p/", "/q/") + a.some("a", "b", "c")); ok {
			return name
		}
	}
}

// span is a range of keys.
func (a *sidecarApp) span() (from, end string) {
	switch a.rng.IntN(4) {
	case 0:
		return "\x00", "\x00"
	case 1:
		return a.key(), "\x00"
	case 2:
		from, end = a.key(), a.key()
		if from > end {
			from, end = end, from
		}
		return from, end + "\x00"
	default:
		dir := a.key()
		if dir = dir[:strings.LastIndex(dir, "/")+1]; dir == "" {
			return "a", "d"
		}
		return dir, clientv3.GetPrefixRangeEnd(dir)
	}
}

// run does one step.
func (a *sidecarApp) run(do act) {
	a.rng = rand.New(rand.NewPCG(uint64(do.X), uint64(a.id)))
	switch do.What {
	case "put", "get", "range", "delete", "delete range", "txn", "read txn":
		a.send(do.What, !a.one(3))
	case "burst":
		for range 3 + a.rng.IntN(20) {
			a.send(a.some("put", "get", "put", "get", "txn", "delete"), true)
		}
	case "watch":
		a.watch()
	case "unwatch":
		a.unwatch()
	case "stream":
		a.request()
	case "grant":
		a.grant()
	case "keep alive":
		a.keepAlive()
	case "revoke":
		a.revoke()
	case "compact":
		a.compact()
	case "queue":
		a.queue()
	}
	time.Sleep(time.Duration(do.Pause) * 4 * time.Millisecond)
}

// send makes a request, and waits for the answer or doesn't.
func (a *sidecarApp) send(what string, goesOn bool) {
	d := &sidecarCall{kind: what, key: a.key(), left: a.one(8)}
	switch what {
	case "put":
		if l := a.lease(); l != nil && a.one(3) {
			d.lease = l.id
		}
	case "get", "range":
		d.kind, d.local, d.descends, d.counts = "get", a.one(3), a.one(4), a.one(6)
		if what == "range" {
			d.key, d.end = a.span()
			d.limit = int64(max(0, a.rng.IntN(8)-4))
		}
	case "delete range":
		d.kind = "delete"
		d.key, d.end = a.span()
		if d.end == "\x00" { // seldom of all
			d.end = d.key + "\x00"
		}
	case "txn", "read txn":
		d.absent = a.one(2)
		for d.other = a.key(); d.other == d.key; d.other = a.key() {
		}
	}
	limit := sidecarHang
	if d.left {
		limit = time.Duration(a.rng.IntN(300)) * time.Millisecond
	}
	a.note(d)
	op := d.op()
	call := func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		r, err := a.c.Do(ctx, op)
		if err != nil && ctx.Err() != nil && !d.left {
			a.w.found("app %d: %v hangs", a.id, d)
		}
		a.answered(d, r, err)
	}
	if goesOn {
		a.wait.Go(call)
		return
	}
	call()
}

// op is the request as etcd's client takes it.
func (d *sidecarCall) op() clientv3.Op {
	var opts []clientv3.OpOption
	if d.end != "" {
		opts = append(opts, clientv3.WithRange(d.end))
	}
	switch d.kind {
	case "put":
		return clientv3.OpPut(d.key, d.value, clientv3.WithLease(d.lease))
	case "delete":
		return clientv3.OpDelete(d.key, append(opts, clientv3.WithPrevKV())...)
	case "txn":
		then := []clientv3.Op{clientv3.OpPut(d.key, d.value), clientv3.OpPut(d.other, d.value)}
		return clientv3.OpTxn(d.condition(), then, []clientv3.Op{clientv3.OpGet(d.key), clientv3.OpGet(d.other)})
	case "read txn":
		return clientv3.OpTxn(d.condition(), []clientv3.Op{clientv3.OpGet(d.key), clientv3.OpGet(d.other)}, []clientv3.Op{clientv3.OpGet(d.key), clientv3.OpGet(d.other)})
	}
	if d.local {
		opts = append(opts, clientv3.WithSerializable())
	}
	if d.limit > 0 {
		opts = append(opts, clientv3.WithLimit(d.limit))
	}
	if d.counts {
		opts = append(opts, clientv3.WithCountOnly())
	}
	if d.descends {
		opts = append(opts, clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend))
	}
	return clientv3.OpGet(d.key, opts...)
}

func (d *sidecarCall) condition() []clientv3.Cmp {
	op := ">"
	if d.absent {
		op = "="
	}
	return []clientv3.Cmp{clientv3.Compare(clientv3.Version(d.key), op, 0)}
}

// note records a request that is made now.
func (a *sidecarApp) note(d *sidecarCall) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d.n, d.begun, d.floor = a.w.next(), a.w.now(), a.w.cluster.ledger.answered.Load()
	d.value = fmt.Sprintf("%d.%d", a.id, d.n)
	if a.w.plan.Large > 0 {
		d.value += strings.Repeat(".", int(d.n*7919)%a.w.plan.Large)
	}
	a.calls = append(a.calls, d)
}

func (a *sidecarApp) answered(d *sidecarCall, r clientv3.OpResponse, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d.heard, d.ended, d.err = a.w.next(), a.w.now(), err
	switch {
	case err != nil:
	case r.Put() != nil:
		d.rev = r.Put().Header.Revision
	case r.Get() != nil:
		d.rev, d.kvs, d.count, d.more = r.Get().Header.Revision, r.Get().Kvs, r.Get().Count, r.Get().More
	case r.Del() != nil:
		d.rev, d.kvs, d.count = r.Del().Header.Revision, r.Del().PrevKvs, r.Del().Deleted
	case r.Txn() != nil:
		d.rev, d.says = r.Txn().Header.Revision, r.Txn().Succeeded
		for _, one := range r.Txn().Responses {
			if got := one.GetResponseRange(); got != nil {
				d.kvs = append(d.kvs, got.Kvs...)
			}
		}
	}
	raise(&a.w.cluster.ledger.answered, d.rev)
}

// finish waits for all answers, and finds that all works again.
func (a *sidecarApp) finish() {
	a.w.within("a call", a.wait.Wait)
	for _, kind := range []string{"put", "get", "range", "txn", "put", "get", "get", "delete", "get", "range", "range"} {
		a.rng = rand.New(rand.NewPCG(uint64(a.id), uint64(len(a.calls))))
		before := len(a.calls)
		a.send(kind, false)
		if d := a.calls[before]; d.err != nil && !d.left && d.lease == 0 {
			a.w.found("app %d: nothing breaks any more, and %v", a.id, d)
		}
	}
	a.finishQueue()
}

// settle waits for all events.
func (a *sidecarApp) settle() {
	a.w.noted.Store(int64(a.w.now()))
	for _, s := range a.streams {
		a.askProgress(s)
	}
	quiet := func() bool { return a.w.now()-time.Duration(a.w.noted.Load()) > 7*time.Second || len(a.streams) == 0 }
	for begun := a.w.now(); a.w.now()-begun < sidecarHang/2 && (a.lacks() || !quiet()); time.Sleep(100 * time.Millisecond) {
	}
	for _, k := range a.keeping {
		k.cancel()
	}
	for _, v := range a.watches {
		a.mu.Lock()
		v.settled = v.closed == 0
		a.mu.Unlock()
		v.cancel()
	}
	for _, s := range a.streams {
		a.mu.Lock()
		s.whole = s.err == nil
		a.mu.Unlock()
		s.cancel()
	}
	for _, o := range a.observed {
		a.mu.Lock()
		o.whole = o.err == nil
		a.mu.Unlock()
		o.cancel()
	}
	a.w.within("the end of watches", a.watching.Wait)
}

// compact has the cluster forget history.
func (a *sidecarApp) compact() {
	l := &a.w.cluster.ledger
	rev := max(1, l.answered.Load()-int64(a.rng.IntN(20)))
	raise(&l.compacted, rev)
	a.wait.Go(func() {
		if a.w.plan.Users { // programs may not
			_, _ = front{s: a.w.cluster.rig.servers[0]}.Compact(own(context.Background()), &pb.CompactionRequest{Revision: rev})
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), sidecarHang)
		defer cancel()
		if _, err := a.c.Compact(ctx, rev); err != nil && codeOf(err) != codes.Unavailable && !errors.Is(err, rpctypes.ErrCompacted) {
			a.w.found("app %d: a compaction at %d: %v", a.id, rev, err)
		}
	})
}
