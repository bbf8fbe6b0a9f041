package host

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/internal/sidecar/composed"
)

// In some runs the composition's clients are in one or two sidecars, and the programs have etcd's. A connection is a client then, of each program
// that has it: what programs ask at the same time has no order among them. A program waits for each answer.

// troubleFar is one thing that happens to a sidecar or to its connections.
func (w *composedWorld) troubleFar(what string, s *simSidecar, rng *rand.Rand) {
	long := time.Duration(rng.IntN(int(composedTimeout)))
	switch what {
	case "local cut":
		if c := w.local.some(""); c != nil {
			c.cut()
		}
	case "local cut all":
		w.local.cutAll(s.name)
	case "local silence":
		w.local.stallAll(2 * long)
	case "sidecar":
		s.end(time.Duration(rng.IntN(2 * int(composedTimeout))))
		time.Sleep(long)
		s.begin()
		w.counts.Restarted++
	case "kill":
		s.kill()
		time.Sleep(long)
		s.begin()
		w.counts.Killed++
	}
}

// endFar ends all clients and sidecars.
func (w *composedWorld) endFar() {
	for _, f := range w.far {
		w.within("the end of a client", func() { _ = f.Close() })
	}
	for _, s := range w.sidecars {
		s.end(0)
	}
	w.within("the end of a killed sidecar", w.dead.Wait)
}

// asks is what a client of a composition has in common with etcd's.
type asks interface {
	clientv3.KV
	clientv3.Lease
	clientv3.Watcher
}

// asks is the program's client.
func (a *composedApp) asks() asks {
	if a.far != nil {
		return a.far
	}
	return a.c
}

// way is a connection of the program: its own, or seldom that of others.
func (a *composedApp) way() *farClient {
	if a.one(3) {
		return a.shared
	}
	return a.far
}

// newSidecar is a sidecar in front of all clusters, which keeps the mirror up to date as well.
func (w *composedWorld) newSidecar(i int) *simSidecar {
	s := &simSidecar{t: w.t, name: sidecarAddress(i), local: w.local, within: w.within, dead: &w.dead}
	s.start = func(l *simLife) (sidecarServer, error) {
		cfg := w.config(func(c *simCluster) []grpc.DialOption { return l.over(c.rig, c.wires) })
		var also composed.Executors
		if w.plan.Mirror {
			also.Mirrors = []string{cfg.Local}
		}
		return composed.New(cfg, also, composed.Limits{}, zap.NewNop())
	}
	return s
}

// farClient is etcd's client of a sidecar.
type farClient struct {
	*clientv3.Client
	w *composedWorld

	mu    sync.Mutex
	since map[string]int64 // when each of its connections was asked for
	forks map[farApp]int64 // clients of the composition
	ended []string         // why the sidecar has ended watches, which etcd's client doesn't tell; those of streams beside that, too
}

// farApp is a program's use of a connection.
type farApp struct {
	app  int
	conn string
}

// farConn is a connection with a name of its own.
type farConn struct {
	net.Conn
	name string
}

// RemoteAddr implements net.Conn.
func (c farConn) RemoteAddr() net.Addr { return address(c.name) }

func (w *composedWorld) newFarClient(at *simSidecar) *farClient {
	f := &farClient{w: w, since: map[string]int64{}, forks: map[farApp]int64{}}
	dial := func(ctx context.Context, to string) (net.Conn, error) {
		n := w.next()
		c, err := w.local.dial(ctx, to)
		f.mu.Lock()
		defer f.mu.Unlock()
		name := fmt.Sprintf("%s#%d", to, n)
		f.since[name] = n
		return farConn{c, name}, err
	}
	var err error
	f.Client, err = clientv3.New(clientv3.Config{
		Endpoints: []string{at.name}, Logger: zap.NewNop(),
		DialTimeout: composedHang, // and a second more is what the client waits for the first keep-alive of a lease
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(dial), grpc.WithChainUnaryInterceptor(f.over), grpc.WithChainStreamInterceptor(f.watches)},
	})
	require.NoError(w.t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.far = append(w.far, f)
	return f
}

type deedKey struct{}

// farDeed is a deed of a program, whose context has it.
type farDeed struct {
	a *composedApp
	d *deed
}

// over notes which connection a deed has had.
func (f *farClient) over(ctx context.Context, method string, r, answer any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	var p peer.Peer
	err := call(ctx, method, r, answer, conn, append(opts, grpc.Peer(&p))...)
	if of, ok := ctx.Value(deedKey{}).(farDeed); ok && p.Addr != nil {
		of.d.fork = f.fork(of.a, p.Addr.String())
	}
	return err
}

// watches notes why watches end.
func (f *farClient) watches(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	st, err := open(ctx, d, conn, method, opts...)
	if err != nil || method != pb.Watch_Watch_FullMethodName {
		return st, err
	}
	return farStream{st, f}, nil
}

type farStream struct {
	grpc.ClientStream
	f *farClient
}

func (s farStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if r, ok := m.(*pb.WatchResponse); err == nil && ok && r.Canceled && !r.Created && r.CompactRevision == 0 && r.CancelReason != "" {
		s.f.mu.Lock()
		s.f.ended = append(s.f.ended, r.CancelReason)
		s.f.mu.Unlock()
	}
	return err
}

// silenced reports whether the sidecar has ended a watch because one of some clusters kept silent. Each such end is asked for once.
func (f *farClient) silenced(names []string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := slices.IndexFunc(f.ended, func(why string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(why, fmt.Sprintf("cluster %q", name)) })
	})
	if at >= 0 {
		f.ended = slices.Delete(f.ended, at, at+1)
	}
	return at >= 0
}

// fork is the client that a connection is, for a program.
func (f *farClient) fork(a *composedApp, conn string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := farApp{a.id, conn}
	if f.forks[of] == 0 {
		f.forks[of] = f.w.forks.Add(1)
		f.w.mu.Lock()
		f.w.dialed[f.forks[of]] = f.since[conn]
		f.w.mu.Unlock()
	}
	return f.forks[of]
}

// level makes a read local.
func (a *composedApp) level(d *deed) (opts []clientv3.OpOption) {
	if a.far != nil && !d.synced {
		opts = append(opts, clientv3.WithSerializable())
	}
	return opts
}

// errLost: the connection to the sidecar, or the answer.
var errLost = errors.New("lost")

var (
	ofCluster = regexp.MustCompile(`cluster "(\w+)"`)
	farErrors = map[codes.Code][]error{
		codes.InvalidArgument: {compose.ErrNoRoute, compose.ErrReserved},
		codes.Unimplemented:   {compose.ErrSpans, compose.ErrNotOverSpan, compose.ErrTransactions},
	}
)

// told is the error that a composition's client in the program would have told, if a sidecar has told another. Those that aren't documented are left as they are.
func (a *composedApp) told(err error) error {
	if a.far == nil || err == nil {
		return err
	}
	code, text := codeOf(err), err.Error()
	for _, known := range farErrors[code] {
		if strings.Contains(text, known.Error()) {
			return fmt.Errorf("%w: %s", known, text)
		}
	}
	var known rpctypes.EtcdError
	switch in := ofCluster.FindStringSubmatch(text); {
	case errors.As(err, &known) && code != codes.Unavailable:
	case errors.Is(err, context.DeadlineExceeded): // the program's
		return &compose.ClusterError{Unknown: true, Err: fmt.Errorf("%w: %w", errLost, err)}
	case code != codes.Unavailable:
	case in != nil:
		return &compose.ClusterError{Cluster: in[1], Unknown: strings.Contains(text, "is unknown"), Err: err}
	default:
		return &compose.ClusterError{Unknown: true, Err: fmt.Errorf("%w: %w", errLost, err)}
	}
	return err
}

// refusedFar asks for what a sidecar with several clusters refuses.
func (a *composedApp) refusedFar() {
	ctx, cancel := context.WithTimeout(context.Background(), composedHang)
	defer cancel()
	var err error
	switch what := a.some("compact", "grant", "status", "members", "users", "token", "progress", "span"); what {
	case "compact":
		_, err = a.far.Compact(ctx, 1)
	case "grant":
		_, err = pb.NewLeaseClient(a.far.ActiveConnection()).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: 7, TTL: 5})
	case "status":
		_, err = pb.NewMaintenanceClient(a.far.ActiveConnection()).Status(ctx, &pb.StatusRequest{})
	case "members":
		_, err = a.far.MemberList(ctx)
	case "users":
		_, err = a.far.UserList(ctx)
	case "token":
		_, err = pb.NewKVClient(a.far.ActiveConnection()).Range(metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, "token"), &pb.RangeRequest{Key: []byte("/c0/p/a")})
	case "progress":
		st, failed := pb.NewWatchClient(a.far.ActiveConnection()).Watch(ctx)
		if err = failed; err == nil {
			_ = st.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
			_, err = st.Recv()
		}
	case "span":
		d := &deed{kind: "refused", key: "/c0/p/a"}
		a.note(d) // for its value
		_, err = a.far.Txn(ctx).Then(clientv3.OpPut("/c0/p/a", d.value), clientv3.OpPut("/c1/p/a", d.value)).Commit()
		a.answered(d, clientv3.OpResponse{}, err)
	}
	if code := codeOf(err); code != codes.Unimplemented && code != codes.Unavailable {
		a.w.found("app %d: what has to be refused: %v", a.id, err)
	}
}

// leaveFar ends the program's client, if no other has it.
func (a *composedApp) leaveFar() {
	if !a.w.plan.Alone[a.id] {
		return
	}
	a.w.within("the end of a client", func() { _ = a.far.Client.Close() })
	a.abandon()
	a.stream.end()
	a.endTails(false)
	a.far = a.w.newFarClient(a.at)
	a.begin()
}

// farFeed is a stream of watches as it is on the wire: etcd's client would lose the order among them.
type farFeed struct {
	a      *composedApp
	remote pb.Watch_WatchClient
	cancel context.CancelFunc
	came   chan *pb.WatchResponse
	fork   int64
	last   int64 // ID
	open   map[int64][]*composedWatch
}

// farPart is a watch in one cluster.
type farPart struct {
	cluster string
	begin   int64 // -1: unknown
}

// Begin is the revision behind which its events are.
func (p *farPart) Begin() int64 { return p.begin }

// Cluster is the cluster's name.
func (p *farPart) Cluster() string { return p.cluster }

// streamed is the stream that goes on, or another one.
func (a *composedApp) streamed() *farFeed {
	if a.stream != nil && a.stream.open != nil {
		return a.stream
	}
	ctx, cancel := context.WithCancel(context.Background())
	remote, err := pb.NewWatchClient(a.far.ActiveConnection()).Watch(ctx)
	if err != nil {
		cancel()
		return nil
	}
	f := &farFeed{a: a, remote: remote, cancel: cancel, came: make(chan *pb.WatchResponse, 1<<14), open: map[int64][]*composedWatch{}}
	a.stream = f
	a.following.Go(func() {
		defer close(f.came)
		for {
			r, err := remote.Recv()
			if err != nil {
				if code := codeOf(err); code != codes.Unavailable && code != codes.Canceled {
					a.w.found("app %d: a stream of watches has ended with %v", a.id, err)
				}
				return
			}
			f.came <- r
		}
	})
	return f
}

// end ends a stream, and so its watches.
func (f *farFeed) end() {
	if f == nil || f.open == nil {
		return
	}
	f.cancel()
	for _, parts := range f.open {
		f.a.tell(parts, compose.Notification{Err: compose.ErrClosed})
	}
	f.open = nil
}

// finish reads no more.
func (f *farFeed) finish() {
	if f != nil {
		f.cancel()
	}
}

// tell notes something of each of some watches.
func (a *composedApp) tell(of []*composedWatch, n compose.Notification) {
	for _, v := range of {
		n.Cluster = v.Cluster()
		a.notes = append(a.notes, composedNote{n, a.w.next(), v.fork, v})
	}
}

// watchFar opens a watch of a range, which has these parts.
func (a *composedApp) watchFar(from, to string, asked int64, cut []stretch) {
	f := a.streamed()
	if f == nil {
		return
	}
	f.last++
	end := to
	if to == "v" && a.one(2) { // there is nothing behind it
		end = "\x00"
	}
	_ = f.remote.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte(from), RangeEnd: []byte(end), StartRevision: asked, WatchId: f.last,
	}}}) // the reader gets the error
	for {
		r, err := f.next(composedHang)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			a.w.found("app %d: the opening of a watch from %q to %q hangs", a.id, from, to)
			f.end()
			return
		case err != nil:
			return
		case !r.Created:
			f.note(r)
		case r.Canceled:
			var of *compose.ClusterError
			if err := a.reason(r); !errors.As(err, &of) && !errors.Is(err, compose.ErrReserved) && !strings.HasSuffix(err.Error(), "watcher range is empty") {
				a.w.found("app %d: the opening of a watch from %q to %q fails with %v", a.id, from, to, err)
			}
			return
		default:
			f.opened(r, asked, cut)
			return
		}
	}
}

// reason is why a watch has ended, or isn't opened.
func (a *composedApp) reason(r *pb.WatchResponse) error {
	if r.CompactRevision > 0 {
		return rpctypes.ErrCompacted
	}
	text := errors.New(r.CancelReason)
	for _, known := range farErrors[codes.InvalidArgument] {
		if strings.Contains(r.CancelReason, known.Error()) {
			return known
		}
	}
	if in := ofCluster.FindStringSubmatch(r.CancelReason); in != nil {
		return &compose.ClusterError{Cluster: in[1], Err: text}
	}
	return text
}

// opened takes the watches that are open.
func (f *farFeed) opened(r *pb.WatchResponse, asked int64, cut []stretch) {
	if len(cut) > 1 && r.Header.Revision != 1 {
		f.a.w.found("app %d: a watch over several clusters is open at %d", f.a.id, r.Header.Revision)
	}
	for _, s := range cut {
		p := &farPart{f.a.w.clusters[s.road.cluster].name, r.Header.Revision}
		if len(cut) > 1 {
			p.begin = -1
		}
		v := &composedWatch{opened: p, n: f.a.w.next(), fork: f.fork, asked: asked, stretch: s}
		f.open[r.WatchId] = append(f.open[r.WatchId], v)
		f.a.watches = append(f.a.watches, v)
	}
}

// next is the next response, which has to come in a time.
func (f *farFeed) next(within time.Duration) (*pb.WatchResponse, error) {
	select {
	case r, ok := <-f.came:
		if ok {
			if from, known := peer.FromContext(f.remote.Context()); known {
				f.fork = f.a.far.fork(f.a, from.Addr.String())
			}
			return r, nil
		}
		f.end()
		return nil, compose.ErrFeedClosed
	case <-time.After(within):
		return nil, context.DeadlineExceeded
	}
}

// note takes what is told of a watch.
func (f *farFeed) note(r *pb.WatchResponse) {
	parts := f.open[r.WatchId]
	switch {
	case r.Canceled:
		delete(f.open, r.WatchId)
		for _, v := range parts { // of which one has ended, and so all
			var of *compose.ClusterError
			err := f.a.reason(r)
			if len(parts) > 1 && (!errors.As(err, &of) || of.Cluster != v.Cluster()) {
				err = compose.ErrClosed
			}
			f.a.tell([]*composedWatch{v}, compose.Notification{Err: err})
		}
		return
	case len(r.Events) > 0:
		key := string(r.Events[0].Kv.Key)
		for _, v := range parts {
			if within(key, v.from, v.to) {
				n := compose.Notification{Revision: r.Header.Revision}
				for _, e := range r.Events {
					n.Events = append(n.Events, (*clientv3.Event)(e))
				}
				f.a.tell([]*composedWatch{v}, n)
				return
			}
		}
	case len(parts) == 1:
		f.a.tell(parts, compose.Notification{Revision: r.Header.Revision})
		return
	}
	f.a.w.found("app %d: a response is of no watch: %v", f.a.id, r)
}

// takeFar takes notifications.
func (a *composedApp) takeFar(within time.Duration, most int) error {
	for range most {
		if a.stream == nil || a.stream.open == nil {
			return compose.ErrFeedClosed
		}
		r, err := a.stream.next(within)
		if err != nil {
			return err
		}
		a.stream.note(r)
	}
	return nil
}

// guess finds where a watch over several clusters has begun, as far as it can be known: before the first event that it has brought, and all
// that the program has done later.
func (a *composedApp) guess(v *composedWatch) {
	p, far := v.opened.(*farPart)
	if !far || p.begin >= 0 {
		return
	}
	p.begin = everything
	for i := range a.notes {
		if n := &a.notes[i]; n.watch == v && len(n.Events) > 0 {
			p.begin = min(p.begin, n.Events[0].Kv.ModRevision-1)
		}
	}
	for _, d := range a.deeds {
		if in := a.w.in(d); d.n > v.n && d.effect != 0 && d.kind != "across" && len(in) == 1 && in[0] == v.road.cluster {
			p.begin = min(p.begin, d.effect-1)
		}
	}
}

// checkOver: a watch of etcd's client over several clusters brings all events of each of its parts, from where that has begun, or ends: also
// when its stream breaks, and the client would go on.
func (a *composedApp) checkOver(v *composedTail) {
	w := a.w
	known := []string{`cluster "c`, compose.ErrSpans.Error(), compose.ErrNoRoute.Error()}
	if len(v.got) == 0 {
		known = append(known, compose.ErrReserved.Error(), "watcher range is empty")
	}
	switch {
	case v.err == nil || v.canceled || v.fork != a.fork || slices.ContainsFunc(known, func(text string) bool { return strings.Contains(v.err.Error(), text) }):
	case !errors.Is(v.err, rpctypes.ErrCompacted):
		w.found("app %d: %v has ended with %v", a.id, v, v.err)
	}
	var in []int
	for _, s := range v.cut {
		in = append(in, s.road.cluster)
	}
	a.closes(v, in...)
	for _, s := range v.cut {
		part := &composedTail{
			n: v.n, fork: v.fork, key: s.from, end: s.to, cluster: s.road.cluster, filter: v.filter, prev: v.prev, canceled: v.canceled, err: v.err, over: v.over, closed: v.closed, part: true,
		}
		for _, r := range v.got {
			if len(r.events) > 0 && within(string(r.events[0].Kv.Key), s.from, s.to) {
				part.got = append(part.got, r)
			}
		}
		for _, d := range a.deeds {
			if in := w.in(d); v.opened > 0 && d.n > v.openN && d.effect != 0 && d.kind != "across" && len(in) == 1 && in[0] == part.cluster && (part.opened == 0 || d.effect <= part.opened) {
				part.opened = d.effect - 1
			}
		}
		a.checkTail(part)
	}
}
