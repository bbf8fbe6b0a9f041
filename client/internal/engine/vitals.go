package engine

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// vitals checks the liveness of a session and its connection, under the
// session's lock. One timer serves for all: the keep-alive every third of the
// ttl, the detection of silent connections, and the expiry of a session without
// a connection.
type vitals struct {
	timer *time.Timer
	due   time.Time // when the timer fires
	wrote time.Time
	heard time.Time
	// ping asks the writer for a message even if no request is pending; asked
	// is the time of it, zero if the server has sent anything since.
	ping  bool
	asked time.Time
	// moving: the session goes to another member once no request is in flight.
	moving bool
}

// A server with unanswered requests is pinged after probe, and its connection
// closed answerTimeout after that.
const (
	probe         = time.Second
	answerTimeout = 2 * time.Second
)

var (
	errMoving = status.Error(codes.Unavailable, "client: moving to the leader")
	errSilent = status.Error(codes.Unavailable, "client: the server doesn't answer")
)

func (v *vitals) attached(s *Session) {
	now := time.Now()
	v.wrote, v.heard, v.asked = now, now, time.Time{}
	v.ping, v.moving = false, false
	v.arm(s, now, s.ttl/3)
}

func (v *vitals) detached(s *Session) {
	now := time.Now()
	v.ping, v.moving = false, false
	v.arm(s, now, v.heard.Add(s.ttl).Sub(now))
}

// sent records that a message is about to be written.
func (v *vitals) sent(s *Session) {
	v.wrote, v.ping = time.Now(), false
	if s.backlog.sent > 0 && v.due.Sub(v.wrote) > probe {
		v.arm(s, v.wrote, probe)
	}
}

func (v *vitals) hears() { v.heard, v.asked = time.Now(), time.Time{} }

func (v *vitals) arm(s *Session, now time.Time, d time.Duration) {
	if s.err != nil {
		return
	}
	d = max(d, time.Millisecond)
	v.due = now.Add(d)
	if v.timer == nil {
		v.timer = time.AfterFunc(d, s.tick)
		return
	}
	v.timer.Reset(d)
}

func (v *vitals) stop() {
	if v.timer != nil {
		v.timer.Stop()
	}
}

// tick runs when the session's timer fires.
func (s *Session) tick() {
	s.mu.Lock()
	now, v := time.Now(), &s.life
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	if now.Sub(v.heard) >= s.ttl {
		s.mu.Unlock()
		s.end(ErrSessionExpired)
		return
	}
	defer s.mu.Unlock()
	if s.stream == nil {
		v.arm(s, now, v.heard.Add(s.ttl).Sub(now))
		return
	}
	next := v.wrote.Add(s.ttl / 3)
	owed := s.backlog.sent > 0
	switch {
	case !v.asked.IsZero() && now.Sub(v.asked) >= min(answerTimeout, s.ttl/3):
		s.stream.cancel(errSilent)
		next = v.heard.Add(s.ttl)
	case !v.asked.IsZero():
		next = v.asked.Add(min(answerTimeout, s.ttl/3))
	case !now.Before(next), owed && now.Sub(v.heard) >= probe:
		v.ping, v.asked = true, now
		s.stir()
		next = now.Add(min(answerTimeout, s.ttl/3))
	case owed:
		next = minTime(next, now.Add(probe))
	}
	v.arm(s, now, next.Sub(now))
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// moveTo sends the session to the leader, unless it is bound to other members.
// First requests in flight are waited for, so that none need to be sent twice.
func (s *Session) moveTo(leader uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.o.Endpoints) > 0 || s.stream == nil || s.life.moving || s.stream.from.member == leader {
		return
	}
	if s.backlog.sent == 0 {
		s.stream.cancel(errMoving)
		return
	}
	s.life.moving = true
	st := s.stream
	time.AfterFunc(answerTimeout, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.stream == st { // a request takes long: stay
			s.life.moving = false
			s.stir()
		}
	})
}
