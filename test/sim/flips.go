package sim

import (
	"errors"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/check"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/store"
)

// Servers compare their states (package check), and in some runs the state of one of them is
// changed by nothing that the log says. Of such a server is checked:
//
//   - The next verdict about a check behind the change fences it.
//   - From then on it answers no read and delivers no event, until it has another's state and a
//     verdict agrees with that. It sends its state to nobody.
//   - In the end it has healed: all servers are equal.
//   - No other server is ever fenced.
//
// Until that verdict nobody can know. What clients may then be shown wrongly is kept from them:
// the changed key is one that they don't use, and reads of all keys are not answered.

const (
	checkTicks   = 20
	flippedKey   = "/flip/key"
	flippedFirst = 200 * time.Millisecond
	flippedMost  = 1500 * time.Millisecond
)

// flip is what has happened to a server's state.
type flip struct {
	behind check.Place // the last check that it had executed before
	maybe  bool        // it has been restarted since: the change may be lost
	lease  int64       // whose TTL is another; 0: it is a key
	known  bool        // a verdict has fenced it
	byHand bool        // an operator has, and it is killed at this moment
	healed bool        // and it has another's state since
}

// flips changes the state of one server after the other.
func (c *cluster) flips() {
	c.later("flip", c.loop.between(flippedFirst, flippedMost), func() {
		c.flips()
		whole := func(s *server) bool { return s.flip == nil && s.life != nil && s.life.fence.Now() == nil }
		s := c.anyServer()
		if c.flipped() || c.operator.busy() || c.operator.few() || !whole(s) || s.life.core.joining() || len(s.life.core.machine.Membership().Voters()) < 3 {
			return
		}
		s.life.core.flip()
	})
}

// flipped says whether the state of a server may be wrong.
func (c *cluster) flipped() bool {
	return slices.ContainsFunc(c.servers, func(s *server) bool { return s.flip != nil })
}

func (c *core) flip() {
	s := c.l.sv
	_, behind, _ := c.machine.Found()
	leases := slices.DeleteFunc(c.leases.List(), func(l lease.Lease) bool { return l.ID >= sessionLeases })
	clients := s.c.keeper == nil && len(s.c.sessions) == 0 // whose watches of all keys are kept from seeing it
	changed := int64(0)
	switch {
	case len(leases) > 0 && (s.c.loop.chance(2) || !clients):
		l := pick(s.c.loop, leases)
		l.TTL += 1 << 30
		c.leases.Load(l)
		changed = l.ID
		s.c.odd = append(s.c.odd, l.ID)
		s.c.loop.printf("in server %d the TTL of lease %d is another", s.id, l.ID)
	case clients:
		if !putUnlogged(c.stores[c.machine.Placement().Partition([]byte(flippedKey))]) {
			return
		}
		s.c.loop.printf("in server %d a key is another", s.id)
	default:
		return
	}
	s.c.stats.Flips++
	s.flip = &flip{behind: behind, lease: changed}
}

// putUnlogged adds a key at the last revision, if there is room for it: a store that was loaded
// refuses what isn't behind that.
func putUnlogged(st *store.Store) (done bool) {
	st.Lock()
	defer st.Unlock()
	defer func() { done = recover() == nil }()
	st.Put(store.Revision{Main: st.Rev(), Sub: 1 << 30}, []byte(flippedKey), []byte("flipped"), 0)
	return done
}

// judged looks at what the last verdict has done.
func (c *core) judged() {
	s := c.l.sv
	f := s.flip
	fenced := c.l.fence.Now()
	if f == nil && fenced != nil && fenced.By.Place.Index < s.lapsed {
		f = &flip{} // a verdict about a check of before has come behind that of the next one
		s.flip = f
	}
	if f == nil {
		if fenced != nil && s.c.survivor != s { // which may lack what the majority of before had
			s.c.fail("fence", "server %d is fenced, and nothing has changed its state", s.id)
		}
		return
	}
	at, how := c.machine.Judged()
	switch {
	case f.healed && fenced == nil:
		s.c.loop.printf("server %d has healed", s.id)
		s.c.stats.Healed++
		s.flip = nil
	case fenced != nil && !f.known: // perhaps by an earlier verdict than the last
		f.known, s.differed = true, true
		s.c.stats.Fenced++
	case f.known || at.Index <= f.behind.Index:
	case how == check.Differs:
		s.c.fail("fence", "server %d differs, and is not fenced", s.id)
	case how == check.Agrees && (f.maybe || f.lease != 0 && !c.leases.Has(f.lease)): // revoked meanwhile
		s.flip, s.lapsed = nil, at.Index
	case how == check.Agrees:
		s.c.fail("fence", "the state of server %d has changed, and a verdict agrees with it", s.id)
	}
}

// fenced is what node does when a verdict has fenced this server, or ended that.
func (l *life) fenced(now *check.Fenced) {
	if l.sv.fencedBy = nil; now == nil {
		l.hub.Fence(nil)
		return
	}
	l.sv.fencedBy = &now.By
	l.sv.untold = l.fence.Untold()
	l.hub.Fence(fault.Fenced)
	l.sessions.End(fault.Fenced)
	l.stir()
}

// restored begins a process as it was when the one before ended.
func (l *life) restored() {
	if by := l.sv.fencedBy; by != nil && !l.sv.c.mutation.ForgetFence {
		l.fence.Restore(*by)
	}
	if l.sv.untold {
		l.fence.RestoreUntold()
	}
	if l.sv.flip != nil {
		l.sv.flip.maybe, l.sv.flip.byHand = true, false
	}
}

// tookState notes that a snapshot has replaced the state.
func (l *life) tookState() {
	l.fence.Installed()
	if f := l.sv.flip; f != nil {
		f.healed = true
		if l.fence.Now() == nil && !f.known { // before anybody could know
			l.sv.flip = nil
		}
	}
}

// showable reports whether a client may be shown what a server reads for it, and notes when the
// server shows what it must not.
func (l *life) showable(what any) bool {
	f := l.sv.flip
	if f != nil && f.known && !f.byHand {
		l.sv.c.fail("fence", "server %d is fenced, and answers %v", l.sv.id, what)
	}
	return f == nil
}

// sendable is showable for its whole state. A leader that has changed unnoticed may send it to a
// server that lags, and then most are wrong: that is out of the protocol's reach. It is prevented
// by an operator, who tells the server on its disk that it is fenced.
func (l *life) sendable() bool {
	s, f := l.sv, l.sv.flip
	switch {
	case f == nil:
		return true
	case f.byHand: // and is being killed
	case f.known:
		s.c.fail("fence", "server %d is fenced, and sends its state", s.id)
	default:
		s.c.loop.printf("server %d is fenced by hand", s.id)
		f.known, f.byHand, s.fencedBy = true, true, new(check.Verdict)
		s.c.loop.after(0, "fence", s.id, 0, func() { s.c.kill(s) })
	}
	return false
}

// disarm is the operator, who lowers the alarm of the whole cluster and, once a server is forced, those of all members: each is the
// forced one's or of one that is lost, and below level 6 it is in the way of all writes.
func (c *cluster) disarm() {
	c.loop.after(c.loop.between(50*time.Millisecond, 200*time.Millisecond), "disarm", 0, 0, c.disarm)
	lowers := func(a *pb.AlarmMember) bool { return isFor(0)(a) || c.survivor != nil && isFor(a.GetMemberID())(a) }
	for _, s := range c.servers {
		if s.life == nil || s.life.paused > c.loop.now {
			continue
		}
		alarms := s.life.core.machine.Alarms()
		i := slices.IndexFunc(alarms, lowers)
		if i < 0 {
			continue
		}
		c.stats.Splits++
		s.life.core.lower(alarms[i])
		return
	}
}

// isFor is CORRUPT of a member, or of the whole cluster: 0.
func isFor(member uint64) func(*pb.AlarmMember) bool {
	return func(a *pb.AlarmMember) bool {
		return a.GetAlarm() == pb.AlarmType_CORRUPT && a.GetMemberID() == member
	}
}

// told says whether each server that a verdict has ever fenced has raised the alarm, which nobody lowers, whether or
// not it was fenced for long.
func (c *cluster) told() bool {
	return !slices.ContainsFunc(c.alive(), func(s *server) bool {
		return s.life != nil && s.differed && !slices.ContainsFunc(s.life.core.machine.Alarms(), isFor(s.id))
	})
}

// whole says whether no server is fenced any more.
func (c *cluster) whole() bool {
	return !slices.ContainsFunc(c.alive(), func(s *server) bool { return s.flip != nil || s.life == nil || s.life.fence.Now() != nil })
}

func isFenced(err error) bool { return errors.Is(err, fault.Fenced) }
