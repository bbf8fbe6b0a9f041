package sim

import (
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// checkSessions: a session's requests took effect in order, without gaps; its
// reads are in their places. checkOrigins checks that none took effect twice.
func (c *cluster) checkSessions(*past) {
	ended := map[int64]time.Duration{}
	for _, e := range c.ledger.systems {
		if e.revoked != 0 {
			ended[e.revoked] = e.at
		}
	}
	for _, cl := range c.sessions {
		for _, s := range cl.past {
			c.checkSession(s)
			if end, over := ended[s.id]; over && !s.closing && end < s.alive+time.Duration(s.ttl)*time.Second {
				c.fail("session", "session %d of %d s ended at %v, and a request that was sent at %v had been answered", s.id, s.ttl, end, s.alive)
			}
		}
	}
}

func (c *cluster) checkSession(s *sessionPast) {
	var hole, last *asking // the first that has no effect; the last that has one
	for i, a := range s.asked {
		switch {
		case c.failure != nil:
			return
		case a.effect != 0 && a.plain():
			if hole != nil {
				c.fail("session", "session %d: %s (number %d) took effect at revision %d, %s before it did not", s.id, a, i+1, a.effect, hole)
			}
			if last != nil && a.effect <= last.effect {
				c.fail("session", "session %d: %s (number %d) took effect at revision %d, before %s at %d", s.id, a, i+1, a.effect, last, last.effect)
			}
			last = a
		case a.effect == 0 && a.state == unknown && a.err == nil && a.certain() && c.keeper == nil && c.alarms == nil: // which can refuse it
			hole = a
		case a.reads() && a.state == ok && a.level != stoapb.Level_FAST && last != nil && a.rev < last.effect:
			c.fail("session", "session %d: %s (number %d) is answered at revision %d, %s before it took effect at %d", s.id, a, i+1, a.rev, last, last.effect)
		}
	}
	c.checkEarly(s)
}

// checkEarly: a read doesn't show later requests of its session, even if it was
// sent again, and a watch from now on doesn't begin behind that.
func (c *cluster) checkEarly(s *sessionPast) {
	var first *asking // that took effect behind
	for i := len(s.asked) - 1; i >= 0 && c.failure == nil; i-- {
		switch a := s.asked[i]; {
		case a.effect != 0 && a.plain():
			first = a
		case a.kind == stoapb.Kind_WATCH && a.rev != 0:
			c.checkOpening(s, i)
		case a.reads() && a.state == ok && first != nil && a.rev >= first.effect:
			c.fail("session", "session %d: %s (number %d) is answered at revision %d, and %s after it took effect at %d", s.id, a, i+1, a.rev, first, first.effect)
		}
	}
}

// checkOpening: of what was asked after a watch from now on, nothing that it watches
// took effect before it began.
func (c *cluster) checkOpening(s *sessionPast, i int) {
	a := s.asked[i]
	w := a.req.(*pb.WatchCreateRequest)
	for _, b := range s.asked[i+1:] {
		put, is := b.req.(*pb.PutRequest)
		if is && b.effect != 0 && b.plain() && b.effect <= a.rev && inRange(put.Key, w.Key, w.RangeEnd) {
			c.fail("session", "session %d: the watch number %d begins behind revision %d, and %s after it took effect at %d", s.id, i+1, a.rev, b, b.effect)
		}
	}
}

// plain says that the effect at a revision is certainly this request's: it was
// told so, or it writes a value of its own.
func (a *asking) plain() bool {
	if a.kind == stoapb.Kind_CLOSE {
		return false
	}
	if a.state == ok || a.who != "" { // an extension writes what others may write, too
		return a.state == ok
	}
	switch r := a.req.(type) {
	case *pb.PutRequest:
		return true
	case *pb.TxnRequest:
		return a.certain() || len(r.Compare) > 0 && !deletes(r.Success) && !deletes(r.Failure)
	}
	return false
}

func deletes(ops []*pb.RequestOp) bool {
	for _, o := range ops {
		if o.GetRequestDeleteRange() != nil {
			return true
		}
	}
	return false
}

// certain says that the request changes something whenever it takes effect.
func (a *asking) certain() bool {
	if a.who != "" {
		return false
	}
	switch r := a.req.(type) {
	case *pb.PutRequest:
		return r.Lease == 0
	case *pb.TxnRequest:
		return len(r.Compare) == 0 && r.Success[0].GetRequestPut() != nil && r.Success[0].GetRequestPut().Lease == 0
	}
	return false
}

// sessionsDone says whether all sessions have all their replies.
func (c *cluster) sessionsDone() bool {
	for _, cl := range c.sessions {
		if s := cl.present; s.replied < len(s.asked) {
			return false
		}
	}
	return true
}
