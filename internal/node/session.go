package node

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/session"
)

// What one session may have waiting before this server reads no more of it. The
// results of writes that are remembered for it hold as many.
const (
	sessionRequests = 1024
	sessionBytes    = 4 << 20
	sessionFlush    = 64 << 10 // a message to the client ends about here
)

// renewals in a session's ttl.
const renewals = 4

// Session is one client's session on this server, for as long as its stream lives.
//
// Whoever brings something in, the client's requests or the completion of a write,
// leaves it in the inbox; and drives the session if nobody does. So an idle session
// has no goroutine here, and one whose client doesn't read waits for it alone.
type Session struct {
	n      *Node
	id     int64
	client string
	ttl    time.Duration
	sink   session.Sink
	done   chan struct{}
	room   chan struct{}

	mu       sync.Mutex
	in       inbox
	driven   bool
	draining bool
	leaving  bool // its client closes it
	requests int  // taken in and not replied to
	bytes    int
	err      error
	ended    bool
	renewed  time.Time

	driver driver
}

// inbox is what has come for a session since its driver last looked.
type inbox struct {
	batches  [][]session.Item
	answered uint64
	landed   []*flight
	arrived  []arrival
	stirred  bool // watches have something
	hello    bool // the client wants to hear something
}

func (in *inbox) empty() bool {
	return len(in.batches) == 0 && len(in.landed) == 0 && len(in.arrived) == 0 && !in.stirred && !in.hello
}

// sessions are those whose streams end here.
type sessions struct {
	mu   sync.Mutex
	byID map[int64]*Session
}

// add makes a session the one of its id, and returns the one before it.
func (ss *sessions) add(s *Session) (before *Session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.byID == nil {
		ss.byID = map[int64]*Session{}
	}
	before = ss.byID[s.id]
	ss.byID[s.id] = s
	return before
}

func (ss *sessions) remove(s *Session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.byID[s.id] == s {
		delete(ss.byID, s.id)
	}
}

func (ss *sessions) get(id int64) *Session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.byID[id]
}

// OpenSession opens a session, or takes one up again. Nothing is said to the sink
// before Start.
func (n *Node) OpenSession(ctx context.Context, o *stoapb.OpenSession, watches []session.Item, sink session.Sink) (session.Handle, *stoapb.Opened, error) {
	ttl, id := int64(0), o.GetSession()
	if id == 0 {
		granted, err := n.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: o.GetTtl()})
		if err != nil {
			return nil, nil, err
		}
		id, ttl = granted.GetID(), granted.GetTTL()
	} else {
		var err error
		if ttl, err = n.LeaseRenew(ctx, id); err != nil {
			return nil, nil, gone(err)
		}
	}
	s := &Session{
		n: n, id: id, client: o.GetClient(), ttl: time.Duration(ttl) * time.Second, sink: sink,
		done: make(chan struct{}), room: make(chan struct{}, 1), renewed: time.Now(),
	}
	s.driver.init(s, o, watches)
	if before := n.sessions.add(s); before != nil {
		before.end(fault.SessionTaken)
	}
	return s, &stoapb.Opened{
		Session: id, Ttl: ttl, Revision: n.Revision(), WindowRequests: sessionRequests, WindowBytes: sessionBytes,
		PartitionMap: s.driver.tellMap(),
	}, nil
}

// gone says of a missing lease what it means for its session.
func gone(err error) error {
	if errors.Is(err, fault.LeaseNotFound) {
		return fault.SessionGone
	}
	return err
}

// Start lets the session begin.
func (s *Session) Start() { s.put(func(in *inbox) { in.stirred = true }) }

// put changes the inbox and sees to it that somebody looks.
func (s *Session) put(change func(*inbox)) {
	s.mu.Lock()
	change(&s.in)
	idle := !s.driven && !s.ended
	s.driven = s.driven || idle
	s.mu.Unlock()
	if idle {
		go s.drive()
	}
}

// Take takes the requests of one message; there may be none. It waits while too
// much of the session is waiting, and it may do the session's work meanwhile.
func (s *Session) Take(ctx context.Context, items []session.Item, answered uint64) error {
	bytes := 0
	for i := range items {
		bytes += items[i].Bytes
	}
	if err := s.makeRoom(ctx); err != nil {
		return err
	}
	s.renew()
	s.mu.Lock()
	if len(items) > 0 {
		s.in.batches = append(s.in.batches, items)
	} else {
		s.in.hello = true
	}
	s.in.answered = max(s.in.answered, answered)
	s.requests += len(items)
	s.bytes += bytes
	drive := !s.driven && !s.ended
	s.driven = s.driven || drive
	s.mu.Unlock()
	if drive {
		s.drive()
	}
	return nil
}

func (s *Session) makeRoom(ctx context.Context) error {
	for {
		s.mu.Lock()
		full, err := s.requests >= sessionRequests || s.bytes >= sessionBytes, s.err
		if s.draining && err == nil {
			err = fault.Stopped
		}
		s.mu.Unlock()
		if !full || err != nil {
			return err
		}
		select {
		case <-s.room:
		case <-s.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// replied makes room for so much.
func (s *Session) replied(requests, bytes int) {
	s.mu.Lock()
	s.requests -= requests
	s.bytes -= bytes
	drained := s.draining && s.requests == 0
	s.mu.Unlock()
	select {
	case s.room <- struct{}{}:
	default:
	}
	if drained {
		s.end(fault.Stopped)
	}
}

// renew prolongs the session's lease, now and then: its client has been heard of.
func (s *Session) renew() {
	at := time.Now()
	s.mu.Lock()
	due := at.Sub(s.renewed) >= s.ttl/renewals
	if due {
		s.renewed = at
	}
	s.mu.Unlock()
	if !due {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(s.n.life, s.n.cfg.requestTimeout())
		defer cancel()
		if _, err := s.n.LeaseRenew(ctx, s.id); errors.Is(err, fault.LeaseNotFound) {
			s.end(fault.SessionGone)
		} else if err != nil {
			s.n.log.Debug("a session's lease could not be renewed", zap.Int64("session", s.id), zap.Error(err))
		}
	}()
}

// Drain ends the session once what it has taken in is replied to.
func (s *Session) Drain() {
	s.mu.Lock()
	s.draining = true
	idle := s.requests == 0
	s.mu.Unlock()
	if idle {
		s.end(fault.Stopped)
	}
}

// Done is closed when the session has ended here.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err says why; nil: its client has closed it.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close is called when the stream has ended.
func (s *Session) Close() { s.end(context.Canceled) }

// end ends the session on this server. What is under way may take effect.
func (s *Session) end(err error) {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	s.ended, s.err = true, err
	driven := s.driven
	s.driven = true // by nobody any more
	s.mu.Unlock()
	s.n.sessions.remove(s)
	close(s.done)
	if !driven {
		s.driver.close()
	}
}

// drive does what there is to do. One goroutine at a time is in it.
func (s *Session) drive() {
	for {
		s.mu.Lock()
		if s.ended {
			s.mu.Unlock()
			s.driver.close()
			return
		}
		if s.in.empty() {
			s.driven = false
			s.mu.Unlock()
			return
		}
		in := s.in
		s.in = inbox{answered: in.answered}
		s.mu.Unlock()
		s.driver.turn(&in)
	}
}

// leave notes that the end of the lease is the client's own wish.
func (s *Session) leave() {
	s.mu.Lock()
	s.leaving = true
	s.mu.Unlock()
}

func (s *Session) revoked() {
	s.mu.Lock()
	leaving := s.leaving
	s.mu.Unlock()
	if !leaving {
		s.end(fault.SessionGone)
	}
}

// sessionRevoked is called when a lease has ended, under the stores' locks.
func (n *Node) sessionRevoked(id int64) {
	if s := n.sessions.get(id); s != nil {
		go s.revoked()
	}
}

// everything is a revision that holds nothing up.
const everything = math.MaxInt64
