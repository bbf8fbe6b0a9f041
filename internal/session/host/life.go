package host

import (
	"errors"
	"time"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/lease"
)

// A session outlives each request that was answered by its ttl. It would cost a call of
// the leader for each of them to renew the lease every time. So the lease lasts a quarter
// longer than the session's ttl, and a request is answered when the lease has been
// renewed since a quarter of the ttl before the request came. Renewals begin after half
// of that, so that answers don't wait for them, unless the client was silent for long.

// LeaseTTL is that of the lease of a session with a ttl, both in seconds.
func LeaseTTL(ttl int64) int64 {
	if ttl > lease.MaxTTL {
		return ttl // to be refused
	}
	return ttl + (ttl+3)/4
}

// sessionTTL is that of the session whose lease has a ttl, both in seconds.
func sessionTTL(lease int64) int64 { return max(1, lease*4/5) }

// life is when a session's client was heard of, and what its lease knows of that.
type life struct {
	slack   time.Duration // by which the lease outlasts the session's ttl
	asked   time.Time     // when the last renewal was asked for
	pending bool          // it has not been answered
}

// sign of life: a moment at which the client was heard of, and which the lease doesn't cover
// yet. Requests from a number on came then or later.
type sign struct {
	at   time.Time
	from uint64
}

// due tells whether it is time for another renewal, at once if a request waits for it, and notes that it is asked for.
func (l *life) due(now time.Time, awaited bool) bool {
	if l.pending || !awaited && now.Sub(l.asked) < l.slack/2 {
		return false
	}
	l.asked, l.pending = now, true
	return true
}

// renew prolongs the session's lease. The answer comes in through the inbox.
func (s *Session) renew(asked time.Time) {
	s.of.server.Renew(s.id, s.user, func(err error) {
		s.put(func(in *inbox) {
			s.life.pending = false
			in.renewals = append(in.renewals, renewal{asked, err})
		})
	})
}

// renewal is what came of one.
type renewal struct {
	asked time.Time
	err   error
}

// heard notes that the client was heard of; its next requests have numbers from one on.
func (d *driver) heard(at time.Time, from uint64) {
	if at.Sub(d.renewed) > d.s.life.slack {
		d.uncovered = append(d.uncovered, sign{at, from})
	}
}

// covers tells whether the lease outlasts a request by the session's ttl.
func (d *driver) covers(seq uint64) bool { return len(d.uncovered) == 0 || seq < d.uncovered[0].from }

// prolong takes in what came of a renewal. A server that can't renew the lease must not
// go on answering: its client has to find one that can.
func (d *driver) prolong(r renewal) {
	switch {
	case r.err == nil:
		d.renewed = r.asked
	case errors.Is(r.err, fault.LeaseNotFound) && d.s.isLeaving():
		d.uncovered = nil // nothing will be left
	case errors.Is(r.err, fault.LeaseNotFound):
		d.abandon(fault.SessionGone)
	case errors.Is(r.err, fault.PermissionDenied), errors.Is(r.err, fault.AuthOldRevision), errors.Is(r.err, fault.UserEmpty):
		d.abandon(r.err)
	case len(d.uncovered) > 0:
		d.abandon(fault.Timeout)
	}
	for len(d.uncovered) > 0 && d.uncovered[0].at.Sub(d.renewed) <= d.s.life.slack {
		d.uncovered = d.uncovered[1:]
	}
	if len(d.uncovered) > 0 && r.err == nil {
		d.s.renewAgain()
	}
}

// renewAgain asks for another renewal, for requests that came after the last was asked
// for.
func (s *Session) renewAgain() {
	now := s.of.server.Now()
	s.mu.Lock()
	again := !s.ended && s.life.due(now, true)
	s.mu.Unlock()
	if again {
		s.renew(now)
	}
}

// leave notes that the end of the lease is the client's own wish.
func (s *Session) leave() {
	s.mu.Lock()
	s.leaving = true
	s.mu.Unlock()
}

func (s *Session) isLeaving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaving
}

// revoked is the end of the lease.
func (s *Session) revoked() {
	if !s.isLeaving() {
		s.end(fault.SessionGone)
	}
}
