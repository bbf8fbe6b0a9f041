package sim

import (
	"errors"
	"time"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/recovery"
	"github.com/stoa-kv/stoa/internal/replica"
)

// sendSnapshot sends this server's file to a peer, as node's install.go does:
// flush, send, and have the peer recover from it in the same process.
func (l *life) sendSnapshot(to uint64) {
	if l.ended || l.sending[to] {
		return
	}
	if l.fence.Now() != nil {
		l.sv.c.fail("fence", "server %d is fenced, and is to send its state", l.sv.id)
		return
	}
	l.sending[to] = true
	reported := false
	report := func() {
		if reported {
			return
		}
		reported = true
		l.after(l.sv.c.plan.delay, "snapshot sent", to, func() {
			delete(l.sending, to)
			l.core.replica.SnapshotSent(to)
		})
	}
	l.after(max(time.Second, 2*l.sv.c.plan.transfer), "snapshot given up", to, report)
	// Not from here: the caller is in the middle of a group's work.
	l.after(time.Microsecond, "snapshot", to, func() {
		l.core.flush(func() { l.streamSnapshot(to, report) })
	})
}

func (l *life) streamSnapshot(to uint64, report func()) {
	c := l.sv.c
	if c.files != nil && (l.fence.Now() != nil || !l.sendable()) {
		report() // it may have healed by the time at which it is read
		return
	}
	groups := l.core.groups
	s, err := l.core.backend.Snapshot()
	if err != nil {
		c.fail("snapshot", "server %d can't make one: %v", l.sv.id, err)
		return
	}
	l.readSnapshot(s, func(file []byte, err error) {
		if err != nil {
			c.fail("snapshot", "server %d can't write one: %v", l.sv.id, err)
			return
		}
		l.stream(to, groups, s.Positions, file, report)
	})
}

func (l *life) stream(to uint64, groups *membership.Groups, at []backend.Position, file []byte, report func()) {
	c := l.sv.c
	link := c.net.link(l.sv.id, to)
	receiver := link.to.life
	if link.cut || receiver == nil {
		report()
		return
	}
	if l.fence.Now() != nil || !l.sendable() { // it was fenced meanwhile
		report()
		return
	}
	c.loop.printf("server %d sends a snapshot at %v to %d", l.sv.id, at, to)
	c.stats.Snapshots++
	receiver.onEnd = append(receiver.onEnd, report) // the stream breaks
	receiver.after(l.between(0, 10*time.Millisecond), "snapshot begins", l.sv.id, func() {
		receiver.take(link, groups, at, file, report)
	})
}

// take receives a snapshot, one at a time.
func (l *life) take(from *link, groups *membership.Groups, at []backend.Position, file []byte, report func()) {
	if l.receiving {
		l.after(5*time.Millisecond, "snapshot waits", from.from.id, func() { l.take(from, groups, at, file, report) })
		return
	}
	useful, fits := l.core.fits(groups, at)
	useful = useful || !l.fence.Reports() // whatever is newer, it can't be kept
	if !useful || !fits {
		l.sv.c.loop.printf("server %d doesn't want the snapshot (useful %v, fits %v)", l.sv.id, useful, fits)
		report()
		return
	}
	l.receiving = true
	l.after(l.between(0, l.sv.c.plan.transfer), "snapshot ends", from.from.id, func() {
		if from.cut {
			l.receiving = false
			report()
			return
		}
		l.install(groups.Generation, file, func() {
			l.receiving = false
			report()
		})
	})
}

// fits says whether a cut brings any group forward, and whether the log reaches
// back to it in the groups that it brings backward.
func (c *core) fits(groups *membership.Groups, at []backend.Position) (useful, fits bool) {
	if groups.Generation < c.groups.Generation {
		return false, false
	}
	useful = groups.Generation > c.groups.Generation
	behind := false
	for p := range at {
		if _, here := c.groups.Partition(groups.Number(p)); !here {
			continue
		}
		first, err := c.logs[p].FirstIndex()
		if err != nil {
			return false, false
		}
		if _, applied := c.replica.Progress(p); at[p].Index > applied {
			useful = true
		} else if at[p].Index+1 < first {
			behind = true
		}
	}
	return useful, !behind
}

// leads says whether this server leads any group: then it may have writes in
// its log whose outcome is unknown after a snapshot.
func (c *core) leads() bool {
	for p := range c.stores {
		if c.replica.Standing(p).Leader == c.l.sv.id {
			return true
		}
	}
	return false
}

// install begins anew from a snapshot, in the same process. Clients of a follower must
// not notice.
func (l *life) install(generation uint32, file []byte, done func()) {
	if l.core.flushing {
		l.after(time.Millisecond, "install", 0, func() { l.install(generation, file, done) })
		return
	}
	if generation < l.core.groups.Generation {
		done()
		return
	}
	l.replacing = !l.core.leads()
	defer func() { l.replacing = false }()
	c := l.sv.c
	c.loop.printf("server %d installs a snapshot", l.sv.id)
	old := l.core
	if !old.end() {
		return
	}
	if c.mutation.LoseCalls {
		l.calls.Stop(fault.TimeoutLeaderFail)
		l.calls = replica.NewCalls()
	}
	if err := old.wal.Close(); err != nil {
		l.fatal(err)
		return
	}
	if err := l.sv.install(file); err != nil {
		c.fail("snapshot", "server %d can't install one: %v", l.sv.id, err)
		return
	}
	l.tookState()
	l.succeed(old, false, false)
	done()
}

// end ends what a core has in progress, and reports whether the process still lives.
func (c *core) end() bool {
	c.disk.finish()
	if c.l.ended {
		return false
	}
	c.ended = true
	return true
}

// succeed recovers a core that takes the place of another, which has ended.
func (l *life) succeed(old *core, led, inherits bool) {
	c := l.sv.c
	var from *core
	if inherits {
		from = old
	}
	var err error
	if l.core, err = l.open(from); errors.Is(err, errDisk) {
		l.core = old
		l.fatal(err)
		return
	} else if err != nil {
		c.fail("restart", "server %d can't recover in the same process: %v", l.sv.id, err)
		return
	}
	old.replica.Stop(fault.TimeoutLeaderFail)
	if l.core.feed = old.feed; !c.mutation.KeepHub {
		published, compacted := recovery.Published(l.core.stores)
		placed := l.core.machine.Placement()
		l.core.feed = l.hub.Install(placed.Wide, placed.Transit() != nil, published, compacted)
	}
	l.core.permit(l.core.auth)
	l.role(l.core, 0) // what the old one still says of its own role isn't heard any more
	l.core.begin(led)
	l.stir()
	l.sessions.Replaced()
}
