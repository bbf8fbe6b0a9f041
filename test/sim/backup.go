package sim

import (
	"errors"
	"time"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/check"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// longestMeeting is how long a backup holds up flushes at a time, as node's.
const longestMeeting = 100 * time.Millisecond

// saved is a backup, and what its server had beside keys and leases when it was cut.
type saved struct {
	server  uint64
	dir     string // where a file of the content can be made; "": in memory
	content []byte
	rev     int64 // once it has been checked
	stale   bool  // of an earlier state than the server's
	flipped bool  // the server's state had changed but by the log
	auth    *auth.State
	alarms  string
	digest  *check.Digest // nil: not known
}

// saving is the backup that a client asks a server for; its steps are those of node's backup.go.
type saving struct {
	l        *life
	deadline time.Duration
	tries    int  // at a read point
	waits    bool // for one
	fenced   uint64
	cut      *backend.Cut // nil: the file has everything
	placed   *placement.Map
	made     saved
	done     func(*saved, error)
}

// backup takes one, of an earlier state once it has taken so long. done gets it once, unless the process ends.
func (l *life) backup(limit time.Duration, done func(*saved, error)) {
	if l.fence.Now() != nil {
		done(nil, fault.Fenced)
		return
	}
	s := &saving{l: l, deadline: l.sv.c.loop.now + limit, fenced: l.fence.Times(), done: done}
	s.made.server = l.sv.id
	if l.sv.c.files != nil {
		s.made.dir = l.sv.c.files.dir
	}
	l.after(limit, "backup takes long", 0, func() {
		if s.waits {
			s.waits = false
			s.tries++ // that one's answer comes too late
			s.whenApart(l.core, s.apart)
		}
	})
	s.try()
}

// try waits until what was acknowledged before is here.
func (s *saving) try() {
	c := s.l.core
	if c.l.sv.c.mutation.SaveAtOnce {
		s.tryCore(c)
		return
	}
	s.waits = true
	s.tries++
	n := s.tries
	c.replica.ReadPoint(c.machine.Placement().All(), func(err error) {
		if n != s.tries {
			return
		}
		s.waits = false
		if err != nil {
			s.again()
			return
		}
		s.whenApart(c, func() { s.tryCore(c) })
	})
}

// whenApart lets a step of the server's wait until its partitions are apart, in half of the times, and not for long.
func (s *saving) whenApart(c *core, then func()) {
	until := s.l.sv.c.loop.now + s.l.sv.c.saver.setApart(c)
	var look func()
	look = func() {
		if c.ended || c.apart() || s.l.sv.c.loop.now >= until {
			then()
			return
		}
		s.l.after(200*time.Microsecond, "backup", 0, look)
	}
	s.l.after(s.l.between(time.Microsecond, 100*time.Microsecond), "backup", 0, look)
}

// apart reports whether partitions aren't closed through what another has.
func (c *core) apart() bool {
	rev, newest := c.backups.Closed()
	return rev < newest
}

func (s *saving) again() {
	s.l.after(10*time.Millisecond, "backup again", 0, func() {
		if s.l.sv.c.loop.now > s.deadline {
			s.apart()
			return
		}
		s.try()
	})
}

func (s *saving) tryCore(c *core) {
	switch {
	case c != s.l.core:
		s.again()
	case c.flushing:
		s.l.after(time.Millisecond, "backup waits", 0, func() { s.tryCore(c) })
	case c.backups.Together(func() { s.take(c) }):
		c.flushing = true
		if c.machine.Groups().Next == 0 {
			d := c.machine.Digest()
			s.made.digest = &d
		}
		s.write(c, func(b *backend.Snapshot) (*backend.Snapshot, error) { return b, nil })
	default:
		s.meet(c)
	}
}

// meet has the partitions meet, and makes the cut there.
func (s *saving) meet(c *core) {
	c.flushing = true
	s.l.sv.c.stats.Apart++
	withdraw := c.backups.AtMeeting(func() {
		s.take(c)
		s.l.sv.c.stats.Met++
		c.after(0, "backup met", 0, func() {
			s.write(c, func(b *backend.Snapshot) (*backend.Snapshot, error) { return b, nil })
		})
	})
	c.meet()
	c.after(longestMeeting, "backup meets nobody", 0, func() {
		if withdraw() {
			c.flushing = false
			s.again()
		}
	})
}

// apart is of the last state that all partitions have had.
func (s *saving) apart() {
	c := s.l.core
	if c.flushing {
		s.l.after(time.Millisecond, "backup waits", 0, s.apart)
		return
	}
	s.made.stale = true
	rev, made := c.backups.Apart(func() { s.take(c) })
	if !made {
		s.done(nil, fault.Timeout)
		return
	}
	c.flushing = true
	s.write(c, func(b *backend.Snapshot) (*backend.Snapshot, error) {
		if !b.Beyond(rev) {
			return b, nil
		}
		past, err := b.Past(rev)
		return past, errors.Join(err, b.Close())
	})
}

// take makes the cut, and notes what the server has.
func (s *saving) take(c *core) {
	s.cut, s.placed = c.cut()
	applied, _ := c.stores[0].Applied()
	s.made.flipped = c.l.sv.flip != nil || applied < c.l.sv.lapsed
	s.made.auth, s.made.alarms = c.machine.Auth(), alarmsText(c.machine.Alarms())
}

// write brings the cut into the file, and sends what a snapshot then has.
func (s *saving) write(c *core, of func(*backend.Snapshot) (*backend.Snapshot, error)) {
	finish := func() {
		b, err := c.backend.Snapshot()
		if err == nil {
			b, err = of(b)
		}
		if err != nil {
			c.l.sv.c.fail("backup", "server %d can't make one: %v", c.l.sv.id, err)
			return
		}
		s.l.readSnapshot(b, s.sent)
	}
	if s.cut == nil {
		c.flushing = false
		finish()
		return
	}
	c.write(s.cut, s.placed, finish)
}

// sent has the content of a backup, which takes a while to get to the client.
func (s *saving) sent(content []byte, err error) {
	if err != nil {
		s.l.sv.c.fail("backup", "server %d can't read one: %v", s.l.sv.id, err)
		return
	}
	s.made.content = content
	s.l.after(s.l.between(0, 20*time.Millisecond), "backup is read", 0, s.finish)
}

func (s *saving) finish() {
	if s.l.fence.Times() != s.fenced { // this state was wrong
		s.done(nil, fault.Fenced)
		return
	}
	s.done(&s.made, nil)
}
