package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
	"github.com/stoa-kv/stoa/internal/version"
)

const (
	// A restarted server must be connected within about 100 ms.
	minBackoff = 20 * time.Millisecond
	maxBackoff = 250 * time.Millisecond

	// The time limit for accepting a link, in units of Options.Silence.
	handshakeSilences = 5

	// A peer that is out of reach for less counts as connected all the while: etcd's streams between members
	// wait so long for a word (server/etcdserver/api/rafthttp, ConnReadTimeout), and links end sooner.
	maxGap = 5 * time.Second

	// How long a peer may say, in the same units, that another server with this one's
	// id is connected, until that can't be this server's last life any more.
	twinSilences = 10
)

// peer is another server: the link to it, and the link from it.
type peer struct {
	t       *Transport
	id      uint64
	log     *zap.Logger
	metrics peerMetrics
	queue   *queue

	life context.Context
	stop context.CancelCauseFunc

	connected atomic.Bool
	since     atomic.Int64                  // when it was connected, by uptime; 0: it is not
	known     atomic.Pointer[version.Known] // by the server that was dialled last
	last      contact                       // of run alone
	// Holds a token when the peer was seen, so that the back-off is skipped.
	hurry chan struct{}

	mu     sync.Mutex
	addrs  []addr
	next   int
	linked *addr // of the present link; nil: there is none

	// The link from the peer; see accept.go.
	incoming
}

// contact is the last time for which a process of a peer was connected, by uptime.
type contact struct {
	incarnation  uint64
	since, until int64
}

func newPeer(t *Transport, id uint64, addrs []addr) *peer {
	p := &peer{
		t:       t,
		id:      id,
		log:     t.o.Logger.With(zap.String("remote-peer-id", fmt.Sprintf("%x", id))),
		metrics: t.o.Metrics.of(t.o.ID, id),
		queue:   newQueue(t.o.QueueBytes),
		hurry:   make(chan struct{}, 1),
		addrs:   addrs,
	}
	p.life, p.stop = context.WithCancelCause(t.life)
	return p
}

// setAddrs is for the next attempt. A link that there is is kept as long as it works: a peer may be given URLs before it listens
// there, or wrong ones.
func (p *peer) setAddrs(addrs []addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.EqualFunc(addrs, p.addrs, func(a, b addr) bool { return a.url == b.url }) {
		return
	}
	p.addrs, p.next = addrs, 0
}

// addr returns the address to dial now.
func (p *peer) addr() addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.addrs[p.next%len(p.addrs)]
	p.next++
	return a
}

// noteLink notes the address of the present link, or that there is none.
func (p *peer) noteLink(a *addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.linked = a
}

// seen is called when the peer has been in contact.
func (p *peer) seen() {
	if p.connected.Load() {
		return
	}
	select {
	case p.hurry <- struct{}{}:
	default:
	}
}

// run keeps a link to the peer until the peer is stopped.
func (p *peer) run() {
	backoff := minBackoff
	var reported string
	var twin time.Time // since when there has been another server with this one's id
	for p.life.Err() == nil {
		wasUp, err := p.converse()
		if p.life.Err() != nil {
			return
		}
		twin, err = p.noteDuplicate(twin, err)
		if lost := p.queue.clear(); lost || wasUp {
			p.t.o.Handler.Unreachable(p.id)
			p.metrics.sendFailures.Inc()
		}
		if wasUp {
			backoff, reported = minBackoff, ""
			p.metrics.disconnected.Inc()
		}
		reported = p.report(err, reported)
		select {
		case <-p.life.Done():
		case <-p.hurry:
			backoff = minBackoff
		case <-time.After(backoff/2 + rand.N(backoff)):
			backoff = min(2*backoff, maxBackoff)
		}
	}
}

// noteDuplicate believes a peer's refusal that another server with this one's
// id is connected once it has lasted for a while.
func (p *peer) noteDuplicate(since time.Time, err error) (time.Time, error) {
	switch {
	case status.Code(err) != codes.AlreadyExists:
		return time.Time{}, err
	case since.IsZero():
		return time.Now(), err
	case time.Since(since) > twinSilences*p.t.o.Silence:
		return since, &expelledError{text: err.Error(), cause: ErrDuplicateID}
	}
	return since, err
}

// report logs why there is no link, once per reason.
func (p *peer) report(err error, reported string) string {
	var expelled *expelledError
	if errors.As(err, &expelled) && p.t.o.Expelled != nil {
		p.t.o.Expelled(expelled)
	}
	if errors.Is(err, errThisRemoved) && p.t.o.Removed != nil {
		p.t.o.Removed()
	}
	switch {
	case err.Error() == reported:
	case status.Code(err) == codes.FailedPrecondition || status.Code(err) == codes.AlreadyExists:
		p.log.Warn("the peer refuses this server", zap.Error(err))
	default:
		p.log.Warn("no link to the peer", zap.Error(err))
	}
	return err.Error()
}

// converse dials once and, if the peer accepts, sends until the link breaks.
func (p *peer) converse() (wasUp bool, err error) {
	ctx, cut := context.WithCancelCause(p.life)
	defer cut(nil)
	a := p.addr()
	conn, err := a.dial(p.t.o.Silence)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	stream, incarnation, err := p.open(ctx, cut, conn)
	if err != nil {
		return false, fmt.Errorf("dial %s: %w", a.url, err)
	}
	now := uptime()
	if p.last.incarnation != incarnation || now-p.last.until > int64(maxGap) {
		p.last = contact{incarnation: incarnation, since: now}
	}
	p.noteLink(&a)
	p.since.Store(p.last.since)
	p.connected.Store(true)
	p.metrics.active.Inc()
	p.log.Info("link to the peer is up", zap.String("url", a.url))
	defer func() {
		p.noteLink(nil)
		p.connected.Store(false)
		p.since.Store(0)
		p.last.until = uptime()
		p.metrics.active.Dec()
	}()

	l := &link{p: p, stream: stream, cut: cut}
	l.heard.Store(now)
	var helpers sync.WaitGroup
	helpers.Go(l.listen)
	helpers.Go(func() { l.watch(ctx) })
	l.send(ctx)
	// The first to detect the end has given the reason.
	helpers.Wait()
	return true, fmt.Errorf("link to %s: %w", a.url, context.Cause(ctx))
}

// open begins the stream and waits until the peer has accepted it. It returns the incarnation of the peer's
// process.
func (p *peer) open(ctx context.Context, cut context.CancelCauseFunc, conn *grpc.ClientConn) (stream grpc.BidiStreamingClient[peerpb.Batch, peerpb.Pulse], incarnation uint64, err error) {
	// More than the connect is given: a TLS handshake with a server that has no
	// CPU to spare must not be begun again and again.
	timeout := time.AfterFunc(handshakeSilences*p.t.o.Silence, func() { cut(errNoAnswer) })
	defer timeout.Stop()
	ctx = metadata.NewOutgoingContext(ctx, p.t.identity(p.id))
	stream, err = peerpb.NewPeerClient(conn).Link(ctx)
	if err != nil {
		return nil, 0, causeOr(ctx, err)
	}
	md, err := stream.Header()
	if err != nil {
		return nil, 0, causeOr(ctx, err)
	}
	if len(md.Get(keyFrom)) == 0 {
		// Refused; the status comes with the first read.
		if _, err = stream.Recv(); err == nil || err == io.EOF {
			err = fmt.Errorf("no stoa server answers there")
		}
		switch status.Code(err) {
		case codes.DataLoss:
			return nil, 0, &expelledError{text: status.Convert(err).Message()}
		case codes.NotFound: // which no proxy's HTTP status is turned into
			return nil, 0, errThisRemoved
		}
		return nil, 0, causeOr(ctx, err)
	}
	incarnation, err = p.recognise(ctx, md)
	return stream, incarnation, err
}

// recognise makes sure that the peer is the one that was dialled, with its data.
func (p *peer) recognise(ctx context.Context, md metadata.MD) (incarnation uint64, err error) {
	who, err := parseIdentity(md)
	if err != nil {
		return 0, err
	}
	if err := p.t.check(who); err != nil {
		return 0, err
	}
	p.known.Store(&who.levels)
	return who.incarnation, p.t.met(ctx, who)
}

// expelledError is a peer's refusal after which this server must exit: its data
// is older than before, or another server runs with a copy of it.
type expelledError struct {
	text  string
	cause error
}

func (e *expelledError) Error() string { return e.text }
func (e *expelledError) Unwrap() error { return e.cause }

var errThisRemoved = errors.New("the peer says that this server was removed from the cluster")

// ErrDuplicateID means that another server runs under this one's id.
var ErrDuplicateID = errors.New("another server has the same id")

// causeOr prefers the reason for which ctx was ended here to gRPC's.
func causeOr(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && cause != context.Canceled {
		return cause
	}
	return err
}
