package sim

import (
	"math"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/raftlog"
	"github.com/stoa-kv/stoa/internal/recovery"
	"github.com/stoa-kv/stoa/internal/store"
)

func (l *life) flushLoop() {
	l.core.flush(func() {})
	l.after(l.between(l.sv.c.plan.flush/2, 2*l.sv.c.plan.flush), "flush", 0, l.flushLoop)
}

// flush makes a cut durable, as node's flush does, and calls done when all that
// was applied before is in the file. The cut is taken now; the file has it all
// at once, a while later.
func (c *core) flush(done func()) {
	if c.flushing {
		c.after(time.Millisecond, "flush again", 0, func() { c.flush(done) })
		return
	}
	cut, placed := c.cut()
	if cut == nil {
		done()
		return
	}
	c.flushing = true
	c.write(cut, placed, done)
}

// write brings a cut into the file of a core that is flushing.
func (c *core) write(cut *backend.Cut, placed *placement.Map, done func()) {
	if c.l.sv.c.mutation.ReleaseEarly {
		_ = c.shortenLog(cut)
	}
	takes := c.l.between(100*time.Microsecond, 5*time.Millisecond)
	if c.l.sv.c.loop.chance(10) {
		takes = c.l.between(0, c.l.sv.c.plan.flushing)
	}
	c.after(takes, "flushed", 0, func() {
		if c.l.sv.c.mutation.FlushApart {
			for p := 1; p < len(c.stores); p++ {
				cut.Partitions[p] = c.stores[p].Cut()
			}
		}
		c.flushing = false
		if err := c.backend.Flush(cut); err != nil {
			c.l.fatal(err)
			return
		}
		for p, s := range c.stores {
			s.Release(cut.Partitions[p])
			c.flushed[p] = cut.Partitions[p].Index
		}
		c.scrub()
		c.placement = placed
		if err := c.shortenLog(cut); err != nil {
			c.l.fatal(err)
			return
		}
		done()
	})
}

func (c *core) cut() (*backend.Cut, *placement.Map) {
	dirty := false
	for p, s := range c.stores {
		index, _ := s.Applied()
		dirty = dirty || s.Dirty() || index != c.flushed[p]
	}
	if !dirty {
		return nil, nil
	}
	cut := &backend.Cut{Partitions: make([]store.Cut, len(c.stores))}
	changed, gone := c.leases.Cut()
	for _, l := range changed {
		cut.System.Leases = append(cut.System.Leases, backend.Lease(l))
	}
	cut.System.LeasesRevoked = gone
	placed := c.machine.StoredPlacement()
	recovery.CutPlacement(&cut.System, c.placement, placed)
	members := recovery.Membership{List: c.machine.Membership(), Configs: c.machine.Configurations()}
	if !members.Equal(c.members) {
		members.Cut(&cut.System)
		c.members = members
	}
	epochs := recovery.StoredEpochs(c.machine.Epochs(), members.List.Level)
	recovery.CutEpochs(&cut.System, c.epochs, epochs)
	recovery.CutGroups(&cut.System, c.stored, c.machine.Groups())
	c.stored = c.machine.Groups()
	c.epochs = epochs
	recovery.CutAuth(&cut.System, c.auth, c.machine.Auth())
	c.auth = c.machine.Auth()
	alarms := c.machine.Alarms()
	cut.System.AlarmsOn, cut.System.AlarmsOff = missing(c.alarms, alarms), missing(alarms, c.alarms)
	c.alarms = alarms
	c.common = c.machine.Common()
	grants := c.machine.CutGrants()
	cut.System.Blobs = apply.AddGrants(cut.System.Blobs, c.grants, grants)
	c.grants = grants
	sessions := c.machine.CutSessions()
	cut.System.Blobs = sessions.AddTo(cut.System.Blobs)
	for p, s := range c.stores {
		if p == 0 || !c.l.sv.c.mutation.FlushApart {
			cut.Partitions[p] = s.Cut()
		}
	}
	return cut, placed
}

// missing returns what of list is not in base.
func missing(base, list []*pb.AlarmMember) []*pb.AlarmMember {
	return slices.DeleteFunc(slices.Clone(list), func(a *pb.AlarmMember) bool {
		return slices.ContainsFunc(base, func(b *pb.AlarmMember) bool { return proto.Equal(a, b) })
	})
}

// meet has all partitions execute a command together, as node's meet does.
func (c *core) meet() {
	if c.meets {
		return
	}
	c.meets = true
	c.propose(0, command.LeaseCheckpoint, &pb.LeaseCheckpointRequest{}, func(error) { c.meets = false })
}

// shortenLog drops from the log what the file holds, but for a tail that slow
// followers may ask for, or that a snapshot coming in may go back to.
func (c *core) shortenLog(cut *backend.Cut) error {
	keep, short := make([]uint64, len(c.logs)), true
	var far map[uint32]uint64
	if c.l.sv.c.has.far {
		far = c.wal.Behind(c.l.sv.c.plan.segment)
	}
	for p, l := range c.logs {
		at := cut.Partitions[p]
		l.SetApplied(raftlog.Position{Index: at.Index, Term: at.Term})
		if c.l.receiving {
			continue
		}
		tail := raftlog.Tail{Entries: 1, Bytes: math.MaxInt64, Common: math.MaxUint64}
		if len(c.replica.Peers()) > 0 {
			tail.Entries, tail.Common = c.l.sv.c.plan.tail, c.common[p]
			tail.Needed, tail.Held = c.replica.Needed(p), c.l.sv.c.plan.held
		}
		tail.Far = far[c.groups.Number(p)]
		before, err := l.FirstIndex()
		if err != nil {
			return err
		}
		index, held := l.Shorten(tail)
		if index >= max(before, at.Index) { // of a partition in which nothing is written, whose followers may lack that one
			c.l.sv.c.fail("log", "server %d drops entry %d of group %d, the last applied one", c.l.sv.id, at.Index, c.groups.Number(p))
		}
		keep[p], short = index+1, short && !held && (tail.Far == 0 || tail.Far < at.Index)
	}
	if !short && c.replica.Leading() {
		c.meet()
	}
	return c.wal.Release(recovery.Keep(c.groups, keep))
}
