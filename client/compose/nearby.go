package compose

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/internal/engine"
)

// nearby reads at the member of a cluster that is next to the client, in no order: over a
// session on stoa, with calls on etcd, and while the session is being opened.
type nearby struct {
	of      *cluster
	nth     int
	watch   *watchdog
	session atomic.Pointer[readSession]
	opening atomic.Bool
}

// readSession is the session, as the watchdog sees it.
type readSession struct{ s *engine.Session }

// connection tells over which connection an answer has come. Answers of equal ones are of one
// process of one member, so of one history: a server that was restored has been started anew.
type connection struct {
	session *engine.Session
	stream  uint64   // of the session
	local   net.Addr // of a call: each connection has an address object of its own
}

// places are those of a route's mirror. They are of one connection, so each session has its own.
func (n *nearby) places(r *route) *places { return &r.places[n.nth] }

// known reports whether the connection can be told from others.
func (c connection) known() bool { return c != connection{} }

// nearbyLooks is how often the watchdog looks within viewTimeout: a read may be given up an eighth
// earlier.
const nearbyLooks = 8

// nearbyAtMost bounds the sessions that a process has for reads at a cluster. All forks share them: each session has a
// lease, and places of its own, whose marks have to be read. One session alone would be a lock and a reading goroutine
// for all cores.
const nearbyAtMost = 8

// vicinity is what the forks of a client share to read at a cluster.
type vicinity struct {
	all     [nearbyAtMost]nearby
	readers atomic.Uint32 // that were given one of them
}

func newVicinity(c *cluster) *vicinity {
	v := new(vicinity)
	watch := newWatchdog(min(viewTimeout, c.cfg.Timeout/2), nearbyLooks)
	for i := range v.all {
		v.all[i].of, v.all[i].nth, v.all[i].watch = c, i, watch
	}
	return v
}

// first is what calls are made with: to divide them would gain nothing.
func (v *vicinity) first() *nearby { return &v.all[0] }

// share returns in turn as many as there are cores.
func (v *vicinity) share() *nearby {
	return &v.all[int(v.readers.Add(1)-1)%min(runtime.GOMAXPROCS(0), nearbyAtMost)]
}

func (v *vicinity) close() {
	var all sync.WaitGroup
	for i := range v.all {
		all.Go(v.all[i].close)
	}
	all.Wait()
}

// ask sends a read. It fails at the given time at the latest, or earlier if the session is silent:
// so a read over a session needs no timer.
func (n *nearby) ask(ctx context.Context, m proto.Message, by time.Time) (proto.Message, connection, error) {
	if l := n.session.Load(); l != nil && l.alive() {
		return l.ask(ctx, m)
	}
	ctx, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	near, kind, err := n.of.connect(ctx)
	if err != nil {
		return nil, connection{}, err
	}
	if kind == Stoa && n.opening.CompareAndSwap(false, true) {
		go n.open(near)
	}
	var to peer.Peer
	a, err := invoke(ctx, clientv3.RetryKVClient(near.Client), m, &to)
	return a, connection{local: identity(to.LocalAddr)}, err
}

// identity is the address if two that are equal are one object. Over others nothing can be
// remembered.
func identity(a net.Addr) net.Addr {
	switch a.(type) {
	case *net.TCPAddr, *net.UnixAddr:
		return a
	}
	return nil
}

// nearbyTTL is that of the session's lease, which has no keys.
const nearbyTTL = 15 * time.Second

func (n *nearby) open(near *engine.Client) {
	defer n.opening.Store(false)
	ctx, cancel := context.WithTimeout(context.Background(), n.of.cfg.Timeout)
	defer cancel()
	options := engine.Options{TTL: nearbyTTL, Level: engine.Causal, Refusal: refusedFor}
	if len(n.of.of.Near) > 0 {
		options.Endpoints = n.of.members
	}
	s, err := near.Session(ctx, options)
	if err != nil {
		return // calls do, and the next of them tries again
	}
	l := &readSession{s: s} // it ends with the client
	n.watch.add(l)
	n.session.Store(l)
}

// close ends the session, with its lease.
func (n *nearby) close() {
	if l := n.session.Load(); l != nil {
		n.watch.remove(l)
		ctx, cancel := context.WithTimeout(context.Background(), n.of.cfg.Timeout)
		defer cancel()
		_ = l.s.Close(ctx) // else its lease expires
	}
}

func (l *readSession) alive() bool {
	select {
	case <-l.s.Done():
		return false
	default:
		return true
	}
}

func (l *readSession) counts() (sent, got int64) { return l.s.Counts() }
func (l *readSession) abandon()                  { l.s.Abandon(ErrSilent) }

// connection is the present one: an answer has come over it if it was the same before it was asked for.
func (l *readSession) connection() connection {
	return connection{session: l.s, stream: l.s.Streams()}
}

func (l *readSession) ask(ctx context.Context, m proto.Message) (proto.Message, connection, error) {
	over := l.connection()
	a, err := l.answer(ctx, m)
	if over != l.connection() {
		over = connection{}
	}
	return a, over, err
}

func (l *readSession) answer(ctx context.Context, m proto.Message) (proto.Message, error) {
	if q, ok := m.(*pb.RangeRequest); ok && isOneKey(q) {
		a, err := l.s.Get(ctx, string(q.Key)) // the shortest way there is
		return (*pb.RangeResponse)(a), err
	}
	f := new(engine.Promise[proto.Message])
	if err := l.s.SendThen(ctx, m, f.Resolve); err != nil {
		return nil, err
	}
	return f.Wait(ctx)
}

// isOneKey reports the read of one key, as it is now.
func isOneKey(q *pb.RangeRequest) bool {
	return len(q.RangeEnd) == 0 && q.Revision == 0 && !q.CountOnly
}
