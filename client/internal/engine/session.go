package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

var (
	// ErrSessionExpired: the session's lease is gone, and its ephemeral keys
	// with it; or no member answered for longer than its ttl. Unanswered
	// requests may have taken effect or not.
	ErrSessionExpired = errors.New("client: the session has expired")
	// ErrSessionClosed: Close was called, of the session or its client.
	ErrSessionClosed = errors.New("client: the session is closed")
	// ErrSessionTaken: another client has resumed the session.
	ErrSessionTaken = errors.New("client: the session was resumed by another client")
	// ErrOvertaken: a read, or the opening of a watch, was in flight when the
	// connection broke. Updates that the session had sent behind it have taken
	// effect, so it can't be answered in its place any more. The read had no
	// effect; a new read shows those updates. Only asynchronous requests fail
	// with it. Its code is Unavailable.
	ErrOvertaken error = status.Error(codes.Unavailable, "client: the read was overtaken by later updates of its session when the connection broke; ask again")
	// ErrRefused: no member accepts connections, or their names can't be
	// resolved. Only sessions with WithRefusal end with it.
	ErrRefused = errors.New("client: no connection")
	// ErrNotSent comes with the reason for which a session has ended, of a request
	// that was never sent: it has not taken effect and never will.
	ErrNotSent = errors.New("the request was not sent")
	// ErrRequestTooLarge: the request has more than Config.MaxRequestBytes. It was
	// not sent.
	ErrRequestTooLarge = errors.New("client: the request is too large")
)

// Session is one FIFO channel to the cluster, over the member to which it is
// connected. See package client for its guarantees.
//
// All methods may be called by any number of goroutines at once. The order of a
// session is the order in which the methods that send (…Async, Batch.Send, and
// the synchronous ones when they begin) were called.
type Session struct {
	Reader // at the session's own level

	c      *Client
	o      Options
	id     int64
	ttl    time.Duration
	ctx    context.Context // of the background goroutines
	cancel context.CancelFunc
	done   chan struct{} // closed with err set
	// stopped is closed when run has returned.
	stopped chan struct{}
	wake    chan struct{} // wakes the writer
	token   atomic.Int64
	streams atomic.Uint64 // that were opened, or begun to
	// through: no event of an ordered watch below this revision is still to come. Only the reading goroutine uses it.
	through int64
	// void: the last stream has ended because its user has another password, or is none any more. Only the goroutine of the streams
	// uses it.
	void bool

	mu      sync.Mutex
	err     error // the reason for which the session has ended
	closing bool  // the last request was made
	backlog backlog
	acked   uint64 // number up to which the present stream has acknowledged replies
	see     int64  // a token that no request has carried yet
	watches map[uint64]*Watch
	stream  *stream
	space   chan struct{} // callers wait on it for space in the backlog
	life    vitals
}

// Options configure a session.
type Options struct {
	TTL   time.Duration
	Level Level
	// Revision is the lowest revision of causal reads.
	Revision int64
	// Endpoints bind the session to members, if there are any.
	Endpoints []string
	// Refusal is the time for which all members may refuse connections, if not
	// 0.
	Refusal time.Duration
}

func (o Options) check() error {
	switch {
	case o.Revision < 0:
		return fmt.Errorf("client: a token of %d", o.Revision)
	case o.Refusal < 0:
		return fmt.Errorf("client: a refusal of %v", o.Refusal)
	case slices.Contains(o.Endpoints, ""):
		return errors.New("client: an endpoint is empty")
	}
	return errors.Join(CheckTTL(o.TTL), o.Level.check())
}

// Options are those of sessions that don't ask for others.
func (c *Client) Options() Options { return Options{TTL: c.cfg.TTL, Level: c.cfg.Level} }

// Session opens a session. It tries until one is open or ctx ends.
func (c *Client) Session(ctx context.Context, o Options) (*Session, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("client: opening a session: %w", err)
	}
	s := &Session{
		c:       c,
		o:       o,
		done:    make(chan struct{}),
		stopped: make(chan struct{}),
		wake:    make(chan struct{}, 1),
		watches: map[uint64]*Watch{},
		backlog: backlog{first: 1},
	}
	s.token.Store(o.Revision)
	s.Reader = Reader{s: s, level: o.Level}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, s.cancel)
	st, err := s.connect()
	if err == nil && !stop() { // ctx ended at the last moment
		st.close()
		err = ctx.Err()
	}
	if err == nil {
		if err = c.enlist(s); err != nil {
			st.close()
		}
	}
	if err != nil {
		s.cancel()
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", ctx.Err(), err)
		}
		return nil, fmt.Errorf("client: opening a session: %w", err)
	}
	s.attach(st)
	go s.run(st)
	return s, nil
}

// ID is the number of the session and of its lease: a key that is put with
// clientv3.WithLease(s.ID()) is deleted with the session.
func (s *Session) ID() clientv3.LeaseID { return clientv3.LeaseID(s.id) }

// TTL is the session's time to live, as granted by the cluster.
func (s *Session) TTL() time.Duration { return s.ttl }

// Token is the highest revision of what the session has seen so far.
func (s *Session) Token() int64 { return s.token.Load() }

// See makes all later causal and strict reads of this session see what another
// session has seen.
func (s *Session) See(revision int64) {
	s.saw(revision)
	s.mu.Lock()
	s.see = max(s.see, revision)
	s.mu.Unlock()
}

func (s *Session) saw(revision int64) {
	for {
		now := s.token.Load()
		if revision <= now || s.token.CompareAndSwap(now, revision) {
			return
		}
	}
}

// Done is closed when the session has ended; Err has the reason.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err is nil until the session has ended, then one of ErrSessionExpired,
// ErrSessionClosed and ErrSessionTaken, or a protocol error.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Member is the id of the member at the other end, 0 while there is none.
func (s *Session) Member() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == nil {
		return 0
	}
	return s.stream.from.member
}

// Streams counts the streams that were opened for the session. As long as it stays the same, all
// answers come from one process of one member.
func (s *Session) Streams() uint64 { return s.streams.Load() }

// Close ends the session after all its requests: its ephemeral keys are deleted
// at one revision. If ctx ends first the session is abandoned, and the keys are
// deleted when its ttl has passed. While one Close waits, another waits for it.
func (s *Session) Close(ctx context.Context) error {
	if err := s.close(ctx); err != nil && !errors.Is(err, ErrSessionClosed) {
		return fmt.Errorf("client: closing a session: %w", err)
	}
	return nil
}

func (s *Session) close(ctx context.Context) error {
	last := new(revisionFuture[int64])
	err := s.send(ctx, &request{kind: stoapb.Kind_CLOSE, to: last})
	if errors.Is(err, ErrSessionClosed) {
		return s.awaitEnd(ctx)
	}
	if err == nil {
		_, err = last.Wait(ctx)
	}
	s.end(ErrSessionClosed)
	<-s.stopped
	return err
}

// awaitEnd returns why the session has ended that is being closed by somebody else.
func (s *Session) awaitEnd(ctx context.Context) error {
	select {
	case <-s.done:
		<-s.stopped
		return s.Err()
	case <-ctx.Done():
		return cmp.Or(s.Err(), ctx.Err())
	}
}

// end ends the session and fails everything that waits.
func (s *Session) end(why error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = why
	sent := max(0, int(int64(s.backlog.carried)-int64(s.backlog.first)+1))
	calls, watches := s.backlog.drain(), s.watches
	s.watches = nil
	s.life.stop()
	s.makeRoom()
	close(s.done)
	s.mu.Unlock()
	s.cancel()
	unsent := notSent(why)
	for i, c := range calls {
		if i < sent {
			c.to.fail(why)
		} else {
			c.to.fail(unsent)
		}
	}
	for _, w := range watches {
		w.end(why)
	}
	s.c.delist(s)
	if !errors.Is(why, ErrSessionClosed) {
		s.c.cfg.Logger.Warn("session ended", zap.Int64("session", s.id), zap.Error(why))
	}
}

// notSent is the reason for which a session has ended, for a request that was never sent.
func notSent(why error) error { return fmt.Errorf("%w: %w", why, ErrNotSent) }

// send gives a request its number and its place. It waits only for space in the
// backlog.
func (s *Session) send(ctx context.Context, r *request) error {
	var seq uint64
	return s.sendNumbered(ctx, r, &seq)
}

// sendAll is send for requests with consecutive numbers.
func (s *Session) sendAll(ctx context.Context, all []request) error {
	for i := range all {
		if err := s.check(&all[i]); err != nil {
			return fmt.Errorf("request %d of %d: %w", i+1, len(all), err)
		}
	}
	s.mu.Lock()
	if err := s.waitForRoom(ctx); err != nil {
		s.mu.Unlock()
		return err
	}
	for i := range all {
		s.enqueue(&all[i])
	}
	s.mu.Unlock()
	s.stir()
	return nil
}

// check refuses requests that no server accepts, before they have a number.
func (s *Session) check(r *request) error {
	if r.refused != nil {
		return r.refused
	}
	if err := r.level.check(); err != nil {
		return err
	}
	if n := r.bodySize(); n > s.c.cfg.MaxRequestBytes {
		return fmt.Errorf("%w: %d bytes of %d", ErrRequestTooLarge, n, s.c.cfg.MaxRequestBytes)
	}
	return nil
}

// enqueue needs the lock.
func (s *Session) enqueue(r *request) {
	revision := int64(0)
	if s.see != 0 && r.level != Fast && isRead(r.kind) {
		revision, s.see = s.see, 0
	}
	b := &s.backlog
	b.room(r.bodySize() + requestOverhead)
	before := len(b.log)
	b.log = appendRequest(b.log, r, b.next(), revision)
	b.push(call{to: r.to, kind: r.kind, level: r.level}, len(b.log)-before)
	if r.kind == stoapb.Kind_CLOSE {
		s.closing = true
	}
}

func isRead(k stoapb.Kind) bool {
	return k == stoapb.Kind_RANGE || k == stoapb.Kind_TXN || k == stoapb.Kind_SYNC || k == stoapb.Kind_WATCH
}

// waitForRoom returns when the session may take another request. It needs the
// lock, and has it again when it returns.
func (s *Session) waitForRoom(ctx context.Context) error {
	for {
		switch {
		case s.err != nil:
			return notSent(s.err)
		case s.closing:
			return notSent(ErrSessionClosed)
		case ctx.Err() != nil:
			return ctx.Err()
		case s.backlog.len() < s.c.cfg.Pending && s.backlog.bytes() < pendingBytes:
			return nil
		}
		if s.space == nil {
			s.space = make(chan struct{})
		}
		space := s.space
		s.mu.Unlock()
		select {
		case <-space:
		case <-ctx.Done():
			s.mu.Lock()
			return ctx.Err()
		}
		s.mu.Lock()
	}
}

// makeRoom wakes callers that wait for space once a quarter of it is free,
// rather than one by one. It needs the lock.
func (s *Session) makeRoom() {
	if s.space == nil || s.backlog.len() > s.c.cfg.Pending*3/4 || s.backlog.bytes() > pendingBytes*3/4 {
		return
	}
	close(s.space)
	s.space = nil
}

// stir wakes the writer.
func (s *Session) stir() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
