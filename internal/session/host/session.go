package host

import (
	"context"
	"sync"
	"time"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/session"
)

// What one session may have waiting before this server reads no more of it. The
// results of writes that are remembered for it hold as many.
const (
	windowRequests = 1024
	windowBytes    = 4 << 20
)

// Session is one client's session on this server, for as long as its stream lives.
//
// All inputs, the client's requests and the completions of writes, are put into
// the inbox; the goroutine that does so drives the session if no other does. So
// an idle session has no goroutine here, and one whose client doesn't read
// waits for it alone.
type Session struct {
	of     *Sessions
	id     int64
	client string
	user   uint64    // the credential of the user who opened it, 0 without authentication
	until  time.Time // the user's token is good until then; zero: no matter how long
	stream uint64    // the number of its stream, 0: it has none
	asked  time.Time // when its stream asked for it
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
	life     life

	driver driver
}

// follows tells whether the client has begun the session's stream behind that of another one.
func (s *Session) follows(other *Session) bool {
	if s.stream != 0 && other.stream != 0 && s.stream != other.stream {
		return s.stream > other.stream
	}
	return s.asked.After(other.asked)
}

// inbox is what has come for a session since its driver last looked.
type inbox struct {
	batches  []batch
	answered uint64
	finished []*writeBatch
	arrived  []arrival
	renewals []renewal
	stirred  bool // watches have something
	admitted bool // the write that waited for its turn
	rights   bool // what permissions there are is known here
}

// batch is the requests of one message. One without any is a sign of life, and wants
// one.
type batch struct {
	items []session.Item
	heard time.Time
}

func (in *inbox) empty() bool {
	return len(in.batches) == 0 && len(in.finished) == 0 && len(in.arrived) == 0 && len(in.renewals) == 0 && !in.stirred && !in.admitted && !in.rights
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
		s.of.server.Go(s.drive)
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
	now := s.of.server.Now()
	if !s.until.IsZero() && now.After(s.until) {
		return fault.InvalidAuthToken
	}
	s.mu.Lock()
	s.in.batches = append(s.in.batches, batch{items, now})
	s.in.answered = max(s.in.answered, answered)
	s.requests += len(items)
	s.bytes += bytes
	drive := !s.driven && !s.ended
	s.driven = s.driven || drive
	renew := !s.ended && s.life.due(now, false)
	s.mu.Unlock()
	if renew {
		s.renew(now)
	}
	if drive {
		s.drive()
	}
	return nil
}

func (s *Session) makeRoom(ctx context.Context) error {
	for {
		s.mu.Lock()
		full, err := s.requests >= windowRequests || s.bytes >= windowBytes, s.err
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
	s.driven = true // by no goroutine any more
	s.mu.Unlock()
	s.of.remove(s)
	close(s.done)
	s.of.cfg.Ended(s.sink, err)
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
		s.driver.step(&in)
	}
}
