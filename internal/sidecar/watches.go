package sidecar

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/sidecar/relay"
)

// watches are the streams of local clients whose watches follow few of the sidecar's.
type watches struct {
	up       *upstream
	lg       *zap.Logger
	m        *metrics
	options  []grpc.CallOption
	question *question
	turns    *turns
	// leader: the streams are to end when their member has no leader (clientv3.WithRequireLeader).
	leader  bool
	silence time.Duration // how long a member may send nothing to a watcher that catches up, at first

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	wake   chan struct{} // the hub has something to send
	// connected is signalled when there is a stream to a member, again.
	connected chan struct{}

	mu  sync.Mutex
	hub *relay.Hub
}

// What is kept of recent events; see relay.Options. Members send fragments of about this size, too.
var watchOptions = relay.Options{Entries: 1024, Bytes: 1 << 20, Total: 64 << 20, Fragment: 3 << 19}

func openWatches(f *forwarder, q *question, t *turns, leader bool, o relay.Options, m *metrics, lg *zap.Logger) *watches {
	ws := &watches{up: f.up, options: f.options, question: q, turns: t, leader: leader, silence: maxSilence, m: m, lg: lg, wake: make(chan struct{}, 1), connected: make(chan struct{}, 1)}
	ws.ctx, ws.cancel = context.WithCancel(context.Background())
	ws.hub = relay.New(o, func() { signal(ws.wake) })
	ws.wg.Go(ws.follow)
	return ws
}

func (ws *watches) close() {
	ws.cancel()
	ws.wg.Wait()
}

func (ws *watches) stats() relay.Stats {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.hub.Stats()
}

// signal wakes the reader of a channel of one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// connect opens a stream to a member.
func (ws *watches) connect(ctx context.Context) (grpc.ClientStream, error) {
	conn, err := ws.up.conn(false)
	if err != nil {
		return nil, err
	}
	if ws.leader {
		ctx = metadata.AppendToOutgoingContext(ctx, rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
	}
	return conn.NewStream(ctx, anyStream, pb.Watch_Watch_FullMethodName, ws.options...)
}

const maxRewatch = time.Second

// follow has a stream to a member whenever there is something to watch.
func (ws *watches) follow() {
	if !ws.up.ready(ws.ctx) {
		return
	}
	for pause := minReopen; ; pause = min(2*pause, maxRewatch) {
		for !ws.wanted() {
			select {
			case <-ws.wake:
			case <-ws.ctx.Done():
				return
			}
		}
		answered, err := ws.relay()
		if ws.ctx.Err() != nil {
			return
		}
		if answered {
			pause = minReopen
		}
		ws.m.rewatches.Inc()
		ws.lg.Warn("lost the stream of watches, or failed to open it", zap.Error(err))
		if !rest(ws.ctx, pause) {
			return
		}
	}
}

func (ws *watches) wanted() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.hub.Wanted()
}

// relay carries one stream to a member, until it breaks.
func (ws *watches) relay() (answered bool, err error) {
	ctx, cancel := context.WithCancel(ws.ctx)
	defer cancel()
	remote, err := ws.connect(ctx)
	if err == nil {
		ws.mu.Lock()
		ws.hub.Connected()
		ws.mu.Unlock()
		signal(ws.connected)
		var sending sync.WaitGroup
		sending.Go(func() { ws.send(ctx, remote) })
		answered, err = ws.receive(remote)
		cancel()
		sending.Wait()
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.hub.Disconnected()
	err = asStatus(err)
	// Without its user the sidecar would try on and on, and local clients would wait for events without a word.
	if ws.leader && errors.Is(rpctypes.Error(err), rpctypes.ErrNoLeader) || dismissed(err) {
		ws.hub.Fail(err)
	}
	return answered, err
}

// askAgain is when a member is asked again for progress that clients wait for.
const askAgain = time.Second

func (ws *watches) send(ctx context.Context, remote grpc.ClientStream) {
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for {
		ws.mu.Lock()
		out := ws.hub.Take()
		ws.mu.Unlock()
		for _, r := range out {
			if remote.SendMsg(r) != nil {
				return // receive has the reason
			}
		}
		select {
		case <-ws.wake:
		case <-again.C:
			ws.mu.Lock()
			ws.hub.Tick()
			ws.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

func (ws *watches) receive(remote grpc.ClientStream) (answered bool, err error) {
	for {
		r, err := receiveWatch(remote)
		if err != nil {
			return answered, err
		}
		answered = true
		ws.m.watchReceived.Add(float64(r.Events()))
		ws.mu.Lock()
		again := ws.hub.Receive(r)
		ws.mu.Unlock()
		if again {
			return answered, rpctypes.ErrGRPCInvalidAuthToken
		}
	}
}

func receiveWatch(remote grpc.ClientStream) (*relay.Response, error) {
	var m frame
	if err := remote.RecvMsg(&m); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return relay.Read(m.data)
}

// A watchStream is a local client's.
type watchStream struct {
	ws    *watches
	ctx   context.Context
	local grpc.ServerStream
	st    *relay.Stream
	over  bool          // guarded by watches.mu
	ready chan struct{} // there may be something to send
	drain chan struct{} // something was sent
}

// serve carries out a local client's stream.
func (ws *watches) serve(ctx context.Context, local grpc.ServerStream) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := &watchStream{ws: ws, ctx: ctx, local: local, ready: make(chan struct{}, 1), drain: make(chan struct{}, 1)}
	ws.mu.Lock()
	l.st = ws.hub.Open(func() { signal(l.ready) })
	ws.mu.Unlock()
	defer func() {
		ws.mu.Lock()
		l.over = true
		l.st.Close()
		ws.mu.Unlock()
	}()
	go func() {
		if err := l.receive(); !errors.Is(err, io.EOF) {
			cancel(err)
		}
	}()
	err := l.send()
	if errors.Is(err, context.Canceled) {
		return rpctypes.ErrGRPCWatchCanceled
	}
	return asStatus(err)
}

func (l *watchStream) send() error {
	for {
		l.ws.mu.Lock()
		message, behind, err := l.st.Next()
		if behind != nil {
			l.catchUp(behind)
		}
		l.ws.mu.Unlock()
		switch {
		case err != nil:
			return err
		case message != nil:
			l.ws.m.watchSent.Inc()
			if err := l.local.SendMsg(&frame{message}); err != nil {
				return err
			}
			signal(l.drain)
		case behind == nil:
			select {
			case <-l.ready:
			case <-l.ctx.Done():
				return context.Cause(l.ctx)
			}
		}
	}
}

func (l *watchStream) receive() error {
	for {
		var m frame
		if err := l.local.RecvMsg(&m); err != nil {
			return err
		}
		r := new(pb.WatchRequest)
		if err := proto.Unmarshal(m.data, r); err != nil {
			return err
		}
		for l.full() {
			select {
			case <-l.drain:
			case <-l.ctx.Done():
				return l.ctx.Err()
			}
		}
		l.take(r)
	}
}

func (l *watchStream) full() bool {
	l.ws.mu.Lock()
	defer l.ws.mu.Unlock()
	return l.st.Full()
}

// take carries out a request. One with no known kind in it is ignored, as by a member.
func (l *watchStream) take(req *pb.WatchRequest) {
	l.ws.mu.Lock()
	defer l.ws.mu.Unlock()
	if l.over {
		return
	}
	switch r := req.RequestUnion.(type) {
	case *pb.WatchRequest_CreateRequest:
		if r.CreateRequest != nil {
			o, known := l.st.Create(r.CreateRequest), l.ws.hub.Known()
			go l.open(o, r.CreateRequest.StartRevision, known)
		}
	case *pb.WatchRequest_CancelRequest:
		if r.CancelRequest != nil {
			l.st.Cancel(r.CancelRequest.WatchId)
		}
	case *pb.WatchRequest_ProgressRequest:
		if r.ProgressRequest != nil {
			l.st.Progress()
		}
	}
}

var (
	errExtensions = errors.New("stoa sidecar: extensions were registered, which may handle watches")
	errHistory    = errors.New("stoa sidecar: the cluster's revision has gone back")
)

// open finds out at which revision a watcher is opened: one that the cluster had after the request.
// known is what was known then.
func (l *watchStream) open(o *relay.Opening, start, known int64) {
	a, err := l.ws.question.ask(l.ctx)
	compacted := false
	if err == nil && a.coalesce && start > 0 && start <= a.header.Revision {
		compacted, err = l.ws.question.compacted(l.ctx, start)
	}
	l.ws.mu.Lock()
	defer l.ws.mu.Unlock()
	switch {
	case l.ctx.Err() != nil:
	case err != nil:
		l.st.Fail(unavailable(err)) // upon which etcd's clients open their watches again
	case !a.coalesce:
		l.st.Fail(unavailable(errExtensions))
	case a.header.Revision < known:
		// All that it had told is void, to others, too.
		l.ws.hub.Fail(unavailable(errHistory))
	default:
		l.ws.hub.Meet(a.header)
		o.Answered(a.header.Revision, compacted)
	}
}
