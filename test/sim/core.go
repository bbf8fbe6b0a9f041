package sim

import (
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/backup"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/raftlog"
	"github.com/stoa-kv/stoa/internal/recovery"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/session/host"
	"github.com/stoa-kv/stoa/internal/store"
	"github.com/stoa-kv/stoa/internal/version"
	"github.com/stoa-kv/stoa/internal/wal"
	"github.com/stoa-kv/stoa/internal/watch"
)

// core is one life of the replicated state: from a recovery to the next. It is
// put together as node's is (open.go there), with the simulation's disk,
// network and time.
type core struct {
	l         *life
	ended     bool
	backend   *backend.Backend
	wal       *wal.WAL
	logs      []*raftlog.Log
	stores    []*store.Store
	leases    *lease.Table
	placement *placement.Map      // in the file
	members   recovery.Membership // in the file, or being written
	groups    *membership.Groups
	stored    *membership.Groups // in the file, or being written
	epochs    []command.Epochs   // likewise
	auth      *auth.State        // likewise
	grants    []byte             // of quotas, likewise
	alarms    []*pb.AlarmMember  // likewise
	machine   *apply.Machine
	replica   *replica.Replica
	state     host.State // the three that sessions need
	feed      *watch.Feed
	disk      *disk
	flushed   []uint64
	flushing  bool
	rewrites  bool     // which holds up flushes, too
	common    []uint64 // apply.Machine.Common of the last cut
	meets     bool     // a command for which all partitions meet is under way
	backups   *backup.Partitions
	stuck     []time.Duration         // no work for a group until then
	seen      *reader                 // this core's place in the committed history
	shown     map[placement.Set]int64 // the last revision at which partitions were read
}

const logDir = "/wal"

// open recovers a core. With an old one, of the generation of groups that has ended, it inherits the
// stores and the logs, as in node's resize.go.
func (l *life) open(old *core) (*core, error) {
	s := l.sv
	c := &core{l: l, backend: s.file, shown: map[placement.Set]int64{}}
	if err := recovery.Resize(c.backend); err != nil {
		return nil, err
	}
	meta, err := c.backend.Meta()
	if err != nil {
		return nil, err
	}
	if c.groups, err = recovery.ReadGroups(&meta); err != nil {
		return nil, err
	}
	c.stored = c.groups
	begins := membership.Of(s.c.begins...)
	if s.joins {
		begins = membership.Of()
	}
	if c.members, err = recovery.ReadMembership(&meta, begins); err != nil {
		return nil, err
	}
	if s.c.mutation.ForgetVersion {
		c.members.List.Level = version.Oldest
	}
	if c.epochs, err = recovery.ReadEpochs(&meta); err != nil {
		return nil, err
	}
	if old != nil {
		err = c.inherit(old, &meta)
	} else if err = c.load(&meta); err == nil {
		err = c.openLog()
	}
	if err != nil {
		return nil, err
	}
	if err := c.force(); err != nil {
		return nil, err
	}
	visible := func(p int) int64 { return c.replica.Visible(p) }
	c.backups = backup.New(c.stores, visible)
	c.machine = apply.New(apply.Config{
		Stores: c.stores, Leases: c.leases, Placement: c.placement, Sink: c, Observer: observer{c},
		Visible: visible, Met: c.backups.Met, Fence: l.fence, Codes: s.c.codes,
		Fatal: func(err error) { s.c.fail("I6", "server %d can't go on: %v", s.id, err); panic(err) },
	})
	c.machine.LoadMembership(c.members.List, c.members.Configs)
	c.machine.LoadAlarms(meta.Alarms)
	c.alarms = c.machine.Alarms()
	c.machine.LoadEpochs(c.epochs)
	c.machine.LoadGroups(c.groups)
	if c.auth, _, err = recovery.Auth(&meta); err != nil {
		return nil, err
	}
	c.machine.LoadAuth(c.auth)
	if c.grants, err = c.machine.LoadGrants(meta.Blobs); err != nil {
		return nil, err
	}
	if !s.c.mutation.ForgetExtensions {
		if err := c.machine.LoadExtensions(); err != nil {
			return nil, err
		}
	}
	if !s.c.mutation.ForgetSessions {
		if err := c.machine.LoadSessions(meta.Blobs); err != nil {
			return nil, err
		}
	}
	s.begun = true
	c.disk = &disk{l: l, core: c}
	c.stuck = make([]time.Duration, len(c.stores))
	s.c.origins += 2
	c.replica, err = replica.New(replica.Config{
		ID: s.id, Origin: s.c.origins,
		ElectionTicks: electionTicks, HeartbeatTicks: 1, RequestTicks: requestTicks,
		Logs: c.logs, Stores: c.stores, Machine: c.machine,
		Network: wire{c}, Disk: c.disk, Calls: l.calls, Wake: c.wake, Stops: l.forcing, Resized: func() { c.after(time.Microsecond, "resize", 0, func() { l.resize(c) }) },
		Closed: func(p int, rev int64) {
			c.feed.Advance(p, rev)
			l.stir()
			l.sessions.Advanced()
		},
		CheckTicks: s.c.checkTicks, Fenced: l.fenced, Told: func() { s.untold = false },
		Role:   func(epoch uint64) { l.role(c, epoch) },
		Serve:  c.answer,
		Logger: s.c.logger(s.id),
	})
	if err != nil {
		return nil, err
	}
	c.state = host.State{Machine: c.machine, Replica: c.replica, Stores: c.stores}
	c.seen = s.c.ledger.resume(c)
	return c, nil
}

// inherit takes over what is large of the generation before.
func (c *core) inherit(old *core, meta *backend.Meta) (err error) {
	if c.placement, err = recovery.Placement(meta); err != nil {
		return err
	}
	old.machine.Retire()
	c.stores, c.leases = recovery.InheritStores(meta, old.stores, old.machine.Placement(), c.placement), old.leases
	if c.logs, err = recovery.InheritLogs(c.groups, c.members.Configs, old.logs, c.stores); err != nil {
		return err
	}
	c.wal = old.wal
	c.wal.SetHead(recovery.Head(c.logs))
	c.took()
	return nil
}

// took notes how far the file is.
func (c *core) took() {
	for _, s := range c.stores {
		index, _ := s.Applied()
		c.flushed = append(c.flushed, index)
	}
}

func (c *core) load(meta *backend.Meta) error {
	var err error
	if c.placement, err = recovery.Placement(meta); err != nil {
		return err
	}
	if c.l.sv.c.mutation.ForgetMap {
		c.placement = placement.New(c.placement.Partitions())
	}
	if c.l.sv.c.mutation.StaleSlots && c.placement.Transit() == nil {
		c.placement = placement.New(c.placement.Partitions()).WithRules(c.placement.Rules())
	}
	if c.l.sv.c.mutation.ForgetCursor {
		c.placement = c.placement.Settled()
	}
	if c.stores, c.leases, err = recovery.Load(c.backend, meta, c.placement, len(c.members.List.Members) == 0, nil); err != nil {
		return err
	}
	c.took()
	return nil
}

// openLog replays the log and brings it together with the stores.
func (c *core) openLog() error {
	s := c.l.sv
	c.logs = recovery.NewLogs(c.groups, c.members.Configs)
	var tail []wal.Record
	replay := recovery.Replay(c.groups, c.logs)
	if s.c.mutation.ForgetTail {
		replay = func(r wal.Record) error {
			r.Data = append([]byte(nil), r.Data...)
			tail = append(tail, r)
			return nil
		}
	}
	var err error
	c.wal, err = wal.Open(wal.Options{
		FS: s.fs, Dir: logDir, SegmentBytes: s.c.plan.segment, Metadata: fmt.Appendf(nil, "server %d", s.id),
		MustExist: s.begun, Head: recovery.Head(c.logs),
	}, replay)
	if err != nil {
		return err
	}
	for _, r := range tail[:len(tail)-min(len(tail), 3)] {
		if err := recovery.Replay(c.groups, c.logs)(r); err != nil {
			return err
		}
	}
	return recovery.Align(c.wal, c.logs, c.stores)
}

func (c *core) begin(led bool) {
	c.replica.Start(led)
	for p := range c.stores {
		c.wake(p)
	}
}

// wake plans a turn of a group's loop. A group may be stuck for a while, as a
// goroutine is that waits for its processor.
func (c *core) wake(p int) {
	loop := c.l.sv.c.loop
	d := loop.between(time.Microsecond, 50*time.Microsecond)
	if loop.chance(100) {
		d += loop.between(0, 5*time.Millisecond)
	}
	d = max(d, c.stuck[p]-loop.now)
	c.after(d, "work", uint64(p), func() {
		c.replica.Work(p)
		c.judged()
	})
}

func (c *core) after(d time.Duration, what string, arg uint64, run func()) {
	c.l.after(d, what, arg, func() {
		if !c.ended {
			run()
		}
	})
}

// Changes implements apply.Sink.
func (c *core) Changes(p int, rev int64, changes []store.Change) {
	c.l.sv.c.ledger.apply(c, p, rev, changes)
	c.feed.Changes(p, rev, changes)
	c.l.stir()
}

// observer implements apply.Observer.
type observer struct{ *core }

func (o observer) LeaseGranted(l lease.Lease) {
	o.l.sv.c.ledger.system(o.core, systemEvent{granted: l.ID, ttl: l.TTL, number: l.Number})
	o.l.leases.Expirer.Granted(l, o.l.clock())
}

func (o observer) LeaseRevoked(id int64) {
	o.l.sv.c.ledger.system(o.core, systemEvent{revoked: id})
	o.l.leases.Expirer.Revoked(id)
	o.l.sessions.Revoked(id)
}

func (o observer) LeaseEnding(id int64) {
	o.l.sv.c.ends(id)
	o.l.sv.c.stats.LeaseSteps++
	o.l.leases.Expirer.Ending(id, o.l.clock())
}

func (o observer) Moved(through int64, to *placement.Map) {
	o.l.sv.c.stats.Moves++
	o.replica.AllClosed(through)
	if !o.l.sv.c.mutation.KeepGroups {
		parts := to.Wide
		if o.l.sv.c.mutation.NarrowWatches {
			parts = to.Range
		}
		o.feed.Moved(through, parts, to.Transit() != nil)
		o.l.stir()
	}
}

func (o observer) AuthChanged(now *auth.State) {
	o.l.sv.c.ledger.noteQuotas(now)
	o.l.sv.c.steward.note(o.l, now)
	if !o.l.sv.c.mutation.KeepWatches {
		o.permit(now)
	}
	o.l.stir()
}

// permit tells the watch hub what users may watch, and puts the rates of quotas in force.
func (c *core) permit(now *auth.State) {
	c.l.sv.c.steward.note(c.l, now)
	c.l.limits.Change(now)
	c.l.rates.change(now)
	c.feed.Permit(now.Revision, func(user uint64, key, end []byte) error {
		u, err := now.Authorize(user)
		if err != nil {
			return err
		}
		return u.MayRead(key, end)
	}, nil)
}

func (o observer) Authenticated(uint64, uint64, string) {}

func (o observer) Compacted(rev int64) {
	o.l.sv.c.ledger.system(o.core, systemEvent{compacted: rev})
	o.l.hub.Compacted(rev)
}
