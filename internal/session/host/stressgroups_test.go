package host

import (
	"bytes"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/raftlog"
	"github.com/stoa-kv/stoa/internal/recovery"
	"github.com/stoa-kv/stoa/internal/replica"
)

// loadStores makes the stores, or takes over those of the generation of groups that has ended, and brings the logs to where
// they are.
func (c *rigCore) loadStores(meta *backend.Meta, old *rigCore) {
	s := c.p.s
	var err error
	if old != nil {
		old.Machine.Retire()
		c.Stores, c.leases = recovery.InheritStores(meta, old.Stores, old.Machine.Placement(), c.placed), old.leases
	} else {
		c.Stores, c.leases, err = recovery.Load(c.file, meta, c.placed, false, nil)
		require.NoError(s.rig.t, err)
	}
	logs := recovery.NewLogs(c.groups, c.members(meta).Configs)
	for p, fresh := range logs {
		index, term := c.Stores[p].Applied()
		logs[p] = s.adopt(c.groups.Number(p), fresh, raftlog.Position{Index: index, Term: term})
		c.flushed = append(c.flushed, index)
		c.wake = append(c.wake, make(chan struct{}, 1))
	}
	s.groups, s.logs = c.groups, logs
}

func (c *rigCore) members(meta *backend.Meta) recovery.Membership {
	m, err := recovery.ReadMembership(meta, membership.OfIDs(stressVoters...))
	require.NoError(c.p.s.rig.t, err)
	m.List.Level = c.p.s.rig.level
	return m
}

// adopt is the log with which a group goes on: the one that it has had, unless that ends before the state, as that of a snapshot.
func (s *rigServer) adopt(number uint32, fresh *raftlog.Log, at raftlog.Position) *raftlog.Log {
	t := s.rig.t
	if p, had := s.groups.Partition(number); had {
		before := s.logs[p]
		if term, err := before.Term(at.Index); err == nil && term == at.Term {
			require.NoError(t, before.Resume(at, &raftpb.ConfState{Voters: stressVoters}))
			return before
		}
		require.NoError(t, fresh.Replay(before.HardStateRecord())) // with the vote
	}
	_, err := fresh.Recover(at)
	require.NoError(t, err)
	return fresh
}

func (c *rigCore) loadMachine(meta *backend.Meta) {
	t, m := c.p.s.rig.t, c.members(meta)
	c.Machine.LoadMembership(m.List, m.Configs)
	c.Machine.LoadGroups(c.groups)
	var err error
	c.epochs, err = recovery.ReadEpochs(meta)
	require.NoError(t, err)
	c.Machine.LoadEpochs(c.epochs)
	c.users, _, err = recovery.Auth(meta)
	require.NoError(t, err)
	c.Machine.LoadAuth(c.users)
	c.Machine.LoadAlarms(meta.Alarms)
	require.NoError(t, c.Machine.LoadSessions(meta.Blobs))
	require.NoError(t, c.Machine.LoadExtensions())
}

// permit tells the hub what users may watch.
func (c *rigCore) permit(now *auth.State) {
	c.feed.Permit(1, func(user uint64, key, end []byte) error {
		u, err := now.Authorize(user)
		if err != nil {
			return err
		}
		return u.MayRead(key, end)
	}, nil)
}

// regroup goes on with another number of partitions, as package node does: what the file lacks of the state is written to it, and
// the next core goes on with the stores and the logs.
func (p *rigProcess) regroup(old *rigCore) {
	p.s.rebuild.Lock()
	defer p.s.rebuild.Unlock()
	if p.down.Load() || p.core.Load() != old {
		return // the file or the log tells the next one
	}
	led := old.Replica.Leader() == p.s.id
	old.end()
	old.flush()
	p.succeed(old, p.load(old.file, old), led)
	p.s.rig.counts.resized.Add(1)
}

// Snapshot implements replica.Network. The logs are long enough; a server needs one if it lacks the end of a group that is gone.
func (c *rigCore) Snapshot(to uint64) {
	if _, under := c.p.sending.LoadOrStore(to, true); under {
		return
	}
	go func() {
		defer c.p.sending.Delete(to)
		if s := c.p.snapshot(); s != nil {
			time.Sleep(c.p.s.rig.latency)
			if !c.p.s.links[to].cut.Load() {
				c.p.s.links[to].to.install(s)
			}
		}
		c.p.core.Load().Replica.SnapshotSent(to)
	}()
}

// rigSnapshot is a file, and the groups of which it is.
type rigSnapshot struct {
	file   []byte
	groups *membership.Groups
	at     []backend.Position
}

func (p *rigProcess) snapshot() *rigSnapshot {
	t := p.s.rig.t
	p.s.rebuild.Lock()
	defer p.s.rebuild.Unlock()
	if p.down.Load() {
		return nil
	}
	c := p.core.Load()
	c.flush()
	s, err := c.file.Snapshot()
	require.NoError(t, err)
	var file bytes.Buffer
	_, err = s.WriteTo(&file)
	require.NoError(t, err)
	return &rigSnapshot{file.Bytes(), c.groups, s.Positions}
}

// install goes on from another server's file, if that brings it forward.
func (s *rigServer) install(from *rigSnapshot) {
	s.rebuild.Lock()
	defer s.rebuild.Unlock()
	p := s.process.Load()
	old := p.core.Load()
	if p.down.Load() || !old.wants(from) {
		return
	}
	old.end()
	file, err := backend.ReadMem(s.identity().Any(), bytes.NewReader(from.file))
	require.NoError(s.rig.t, err)
	p.succeed(old, p.load(file, nil), false)
	s.rig.counts.installed.Add(1)
}

// wants tells whether a snapshot brings any group forward, and the log reaches back to it in those that it brings backward.
func (c *rigCore) wants(from *rigSnapshot) bool {
	later := from.groups.Generation > c.groups.Generation
	if from.groups.Generation < c.groups.Generation {
		return false
	}
	for p, at := range from.at {
		if _, here := c.groups.Partition(from.groups.Number(p)); !here {
			continue
		}
		first, err := c.p.s.logs[p].FirstIndex()
		if err != nil || at.Index+1 < first {
			return false
		}
		_, applied := c.Replica.Progress(p)
		later = later || at.Index > applied
	}
	return later
}

var _ replica.Network = (*rigCore)(nil)

// resize has the cluster go on with another number of partitions, and tries until all is to be well; keys leave partitions that go
// before, or with them.
func (r *rig) resize(to int, drains bool, over *atomic.Bool) {
	for try := to; !over.Load(); time.Sleep(20 * time.Millisecond) {
		try++
		c := r.servers[try%3].process.Load().core.Load()
		if len(c.Stores) == to {
			return
		}
		cmd := command.Command{Kind: command.Resize, User: auth.Own, Body: command.AppendResize(nil, to)}
		if drains && !c.Machine.Placement().Within(to) {
			wish := command.Wish{Op: command.Drain, Partition: to}
			cmd = command.Command{Kind: command.Place, User: auth.Own, Body: wish.AppendTo(nil)}
		}
		if c.Machine.Placement().Transit() != nil {
			continue
		}
		done := make(chan struct{})
		c.Replica.Submit(&replica.Write{Command: cmd, Parts: c.placed.All(), System: true, Done: func(replica.Outcome) { close(done) }})
		<-done
	}
}
