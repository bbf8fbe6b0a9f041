package sim

import (
	"errors"
	"time"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/check"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/recovery"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/session/host"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/tenant"
	"github.com/stoa-kv/stoa/internal/version"
	"github.com/stoa-kv/stoa/internal/vfs"
	"github.com/stoa-kv/stoa/internal/watch"
)

// server is a machine: the state that survives its process.
type server struct {
	c    *cluster
	id   uint64
	fs   *vfs.Mem         // holds the log
	file *backend.Backend // what was flushed
	life *life            // the process, nil while there is none

	lives    int
	rate     float64        // how long its second is
	slowDisk time.Duration  // added to each sync, for a while
	badDisk  vfs.Op         // the next such call fails
	lost     bool           // never starts again
	begun    bool           // its log has been made
	joins    bool           // it was not there when the cluster began
	forced   bool           // it is started to be the only member
	due      bool           // it is about to start for the first time
	flip     *flip          // nil: nothing has changed its state but the log
	fencedBy *check.Verdict // survives its processes
	untold   bool           // likewise: operators have still to be told that it was fenced
	differed bool           // a verdict has fenced it
	lapsed   uint64         // the index of the check that has agreed with it since what had changed its state was gone
}

// life is one process of a server: the counterpart of node.Node.
type life struct {
	sv      *server
	n       uint64 // of this server's lives
	ended   bool
	paused  time.Duration // until when
	hub     *watch.Hub
	leases  *lease.Leader
	fence   *check.Fence
	core    *core
	forcing bool           // the next core is forced again
	calls   *replica.Calls // of each core's replica

	stirred   bool  // a step of the hub is planned
	announced int64 // the highest revision announced by a watch of etcd's API here
	streams   []*watcher
	sessions  *host.Sessions
	limits    *tenant.Limits
	rates     *rates
	sending   map[uint64]bool            // snapshots to these are on their way
	receiving bool                       // a snapshot is coming in
	snapshots map[*backend.Snapshot]bool // of its file, that are being read
	onEnd     []func()                   // to be told of the end
	had       []uint64                   // the rights that the server has come to, by their revisions, if there are users with few
	replacing bool                       // a follower's state by a snapshot, at this moment
}

// identity of all files of one server.
func (s *server) identity() backend.Identity {
	return backend.Identity{Cluster: 0x5704, Server: s.id, Partitions: s.c.partitions}
}

// start begins a life. A server that can't start ends the simulation.
func (s *server) start() {
	if s.life != nil || s.lost {
		return
	}
	s.lives++
	l := &life{sv: s, n: uint64(s.lives), fence: new(check.Fence), calls: replica.NewCalls(), sending: map[uint64]bool{}, snapshots: map[*backend.Snapshot]bool{}}
	l.leases = lease.NewLeader(l.clock)
	l.limits = tenant.New(func() int64 { return int64(s.c.loop.now) })
	l.rates = &rates{c: s.c, life: l}
	l.sessions = l.newSessions()
	l.restored()
	s.life = l
	s.c.loop.printf("server %d starts life %d", s.id, s.lives)
	c, err := l.open(nil)
	if errors.Is(err, errDisk) {
		s.c.loop.printf("server %d can't start: %v", s.id, err)
		s.life = nil
		s.fs = s.fs.Restart()
		s.fs.Inject(s.inject)
		s.c.restartLater(s)
		return
	}
	if err != nil {
		s.c.fail("restart", "server %d can't start: %v", s.id, err)
		return
	}
	l.core = c
	l.hub = watch.NewHub(len(c.stores), l.history, s.c.plan.hub(c.machine.Placement()))
	c.feed = l.hub.Reset(recovery.Published(c.stores))
	c.permit(c.auth)
	if l.fence.Now() != nil {
		l.hub.Fence(fault.Fenced)
	}
	c.begin(false)
	l.after(s.tickTime(), "tick", 0, l.tick)
	l.after(s.c.loop.between(0, s.c.plan.flush), "flush", 0, l.flushLoop)
	l.after(leaseInterval, "leases", 0, l.leaseLoop)
	l.moveLoop()
	l.watchMembers()
}

// end ends the process: none of its events runs afterwards.
func (l *life) end() {
	if l.ended {
		return
	}
	l.ended = true
	l.core.ended = true
	l.sv.life = nil
	l.sv.c.net.gone(l.sv)
	l.sv.c.lifeEnded(l)
	for _, fn := range l.onEnd {
		fn()
	}
	l.leaveFile()
}

// kill ends the process; the machine keeps running.
func (s *server) kill() {
	if s.life == nil {
		return
	}
	s.c.loop.printf("server %d is killed", s.id)
	s.life.end()
	s.fs = s.fs.Restart()
	s.fs.Inject(s.inject)
}

// powerOff ends the machine: what wasn't synced is lost, wholly or in part.
func (s *server) powerOff() {
	s.c.loop.printf("server %d loses its power", s.id)
	if s.life != nil {
		s.life.end()
	}
	s.fs = s.fs.Crash(s.c.loop.rng)
	s.fs.Inject(s.inject)
}

// inject is the file system's hook.
func (s *server) inject(op vfs.Op, _ string) error {
	if op == s.badDisk && s.life != nil {
		s.badDisk = ""
		return errDisk
	}
	return nil
}

// fatal ends the process when its disk has failed.
func (l *life) fatal(err error) {
	l.sv.c.loop.printf("server %d: fatal: %v", l.sv.id, err)
	if !l.ended {
		l.sv.kill()
		l.sv.c.restartLater(l.sv)
	}
}

func (s *server) tickTime() time.Duration {
	d := time.Duration(float64(tickInterval) * s.rate)
	return d + s.c.loop.between(0, tickInterval/20)
}

func (l *life) tick() {
	l.core.replica.Tick()
	l.after(l.sv.tickTime(), "tick", 0, l.tick)
}

// after runs something in this process, unless it has ended by then. While the
// process is paused it waits.
func (l *life) after(d time.Duration, what string, arg uint64, run func()) {
	l.sv.c.loop.after(d, what, l.sv.id, arg, func() { l.now(what, arg, run) })
}

// now runs something in this process at once, if it isn't paused.
func (l *life) now(what string, arg uint64, run func()) {
	loop := l.sv.c.loop
	switch {
	case l.ended:
	case l.paused > loop.now:
		due := loop.now
		loop.putOff(l.paused, due, what, l.sv.id, arg, func() { l.now(what, arg, run) })
	default:
		run()
	}
}

func (l *life) between(lo, hi time.Duration) time.Duration { return l.sv.c.loop.between(lo, hi) }

// stir plans a step of the watch hub.
func (l *life) stir() {
	if l.stirred || l.ended {
		return
	}
	l.stirred = true
	l.after(l.between(0, 300*time.Microsecond), "hub", 0, func() {
		l.stirred = false
		l.hub.Step()
		for _, w := range l.streams {
			w.poke()
		}
	})
}

// reach gives a new file the version that its cluster has from the beginning: the newest, unless the
// version changes, so that all that this program can do is simulated.
func (s *server) reach(level version.Level) {
	cut := &backend.Cut{Partitions: make([]store.Cut, s.c.partitions), System: backend.System{Level: level}}
	for p := range cut.Partitions {
		cut.Partitions[p] = store.New(nil).Cut()
	}
	if err := s.file.Flush(cut); err != nil {
		s.c.fail("versions", "%v", err)
	}
}

func newServer(c *cluster, id uint64) *server {
	s := &server{c: c, id: id, fs: vfs.NewMem(), rate: 0.8 + 0.4*c.loop.rng.Float64()}
	s.makeFile()
	s.reach(c.level)
	s.fs.Inject(s.inject)
	return s
}
