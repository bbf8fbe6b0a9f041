//go:build !race

// One goroutine: there is nothing for the race detector, under which this takes five times as long.

package golden

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/recovery"
	"github.com/stoa-kv/stoa/internal/store"
)

var identity = backend.Identity{Cluster: 0xc1, Server: 1, Partitions: 2}

// state is a state machine of two partitions over a file, without Raft: entries are
// executed as the groups' loops do it, and flushed as a server does it.
type state struct {
	t       *testing.T
	be      *backend.Backend
	stores  []*store.Store
	leases  *lease.Table
	machine *apply.Machine
	groups  *membership.Groups // in the file
	stamp   int64
	seq     uint64
	index   []uint64
}

// restore loads the state that a file has, or a new one.
func restore(t *testing.T, be *backend.Backend) *state {
	s := &state{t: t, be: be, stamp: 2}
	meta, err := be.Meta()
	require.NoError(t, err)
	m, err := recovery.ReadMembership(&meta, membership.Of(
		&pb.Member{ID: 1, Name: "one", PeerURLs: []string{"http://one:2380"}}, &pb.Member{ID: 2, Name: "two", PeerURLs: []string{"http://two:2380"}}))
	require.NoError(t, err)
	placed, err := recovery.Placement(&meta)
	require.NoError(t, err)
	s.stores, s.leases, err = recovery.Load(be, &meta, placed, false, nil)
	require.NoError(t, err)
	for _, st := range s.stores {
		at, _ := st.Applied()
		s.index = append(s.index, at)
		s.stamp = max(s.stamp, st.Rev()+1)
	}
	s.machine = apply.New(apply.Config{Stores: s.stores, Leases: s.leases, Placement: placed})
	s.machine.LoadAlarms(meta.Alarms)
	require.NoError(t, s.machine.LoadSessions(meta.Blobs))
	epochs, err := recovery.ReadEpochs(&meta)
	require.NoError(t, err)
	s.machine.LoadEpochs(epochs)
	s.machine.LoadMembership(m.List, m.Configs)
	s.groups, err = recovery.ReadGroups(&meta)
	require.NoError(t, err)
	s.machine.LoadGroups(s.groups)
	users, _, err := recovery.Auth(&meta)
	require.NoError(t, err)
	s.machine.LoadAuth(users)
	_, err = s.machine.LoadGrants(meta.Blobs)
	require.NoError(t, err)
	require.NoError(t, s.machine.LoadExtensions())
	return s
}

// run executes one command in some partitions.
func (s *state) run(parts placement.Set, c command.Command) apply.Result {
	s.t.Helper()
	result := s.try(parts, c)
	require.NoError(s.t, result.Err)
	return result
}

func (s *state) try(parts placement.Set, c command.Command) (result apply.Result) {
	s.seq++
	e := command.Entry{Stamp: s.stamp, Origin: 8, Seq: s.seq, Commands: []command.Command{c}}
	s.stamp += int64(e.Stamps())
	reply := func(_ int, r apply.Result) { result = r }
	var at []apply.Arrival
	for p := range parts.Each() {
		s.index[p]++
		at = append(at, apply.Arrival{Partition: p, Index: s.index[p], Term: 2})
	}
	if len(at) == 1 {
		s.machine.Local(at[0].Partition, at[0].Index, 2, &e, reply)
	} else {
		e.Parts = parts
		s.machine.Rendezvous(at, &e, reply)
	}
	return result
}

func (s *state) system(k command.Kind, body []byte) {
	s.t.Helper()
	s.run(s.machine.Placement().All(), command.Command{Kind: k, Body: body})
}

func (s *state) request(k command.Kind, m proto.Message) apply.Result {
	s.t.Helper()
	p := s.machine.Plan(k, m, func() (string, int64) { return "alice", 0 })
	return s.run(p.Parts, p.Command(k, marshal(s.t, m)))
}

func (s *state) put(key, value string, lease int64) {
	s.t.Helper()
	s.request(command.Put, &pb.PutRequest{Key: []byte(key), Value: []byte(value), Lease: lease})
}

// once is a write of session 99 to one partition.
func (s *state) once(seq uint64, k command.Kind, m proto.Message) apply.Result {
	s.t.Helper()
	q := command.Sequenced{Session: 99, Seq: seq, Pred: seq - 1, Kind: k, Body: marshal(s.t, m)}
	parts := s.machine.Plan(k, m, func() (string, int64) { return "alice", 0 }).Parts
	return s.try(parts, command.Command{Kind: command.InSession, Body: q.AppendTo(nil)})
}

// change changes the members, and has the groups follow.
func (s *state) change(op membership.Op, m *pb.Member) {
	s.t.Helper()
	c := membership.Change{Op: op, Member: m, MaxLearners: 1}
	b, err := c.Encode()
	require.NoError(s.t, err)
	s.system(command.MemberChange, b)
	list := s.machine.Membership()
	for !membership.Settled(list, s.machine.Configurations()) {
		for _, d := range membership.DueSteps(list, s.machine.Configurations()) {
			if s.machine.Configuration(d.Group).Generation == list.Generation {
				continue // a seal, which the releases had not that wrote these files
			}
			next, ok := s.machine.Configuration(d.Group).Next(d.Step)
			require.True(s.t, ok)
			s.index[d.Group]++
			s.machine.Configure(d.Group, s.index[d.Group], 2, next)
		}
	}
}

// move carries out so many steps of a transit, of so many keys.
func (s *state) move(steps, keys int) {
	s.t.Helper()
	for range steps {
		step := s.machine.Ahead(store.Budget{Keys: keys, Visits: keys})
		require.NotNil(s.t, step)
		s.system(command.Move, step.AppendTo(nil))
	}
}

// flush writes all that has changed to the file.
func (s *state) flush() {
	s.t.Helper()
	cut := &backend.Cut{}
	for _, st := range s.stores {
		cut.Partitions = append(cut.Partitions, st.Cut())
	}
	changed, gone := s.leases.Cut()
	for _, l := range changed {
		cut.System.Leases = append(cut.System.Leases, backend.Lease(l))
	}
	cut.System.LeasesRevoked, cut.System.AlarmsOn = gone, s.machine.Alarms()
	(recovery.Membership{List: s.machine.Membership(), Configs: s.machine.Configurations()}).Cut(&cut.System)
	recovery.CutPlacement(&cut.System, nil, s.machine.StoredPlacement())
	recovery.CutGroups(&cut.System, s.groups, s.machine.Groups())
	s.cutEpochs(&cut.System)
	if now := s.machine.Auth(); !now.Empty() {
		recovery.CutAuth(&cut.System, auth.New(), now)
	}
	cut.System.Blobs = apply.AddGrants(cut.System.Blobs, nil, s.machine.CutGrants())
	sessions := s.machine.CutSessions()
	cut.System.Blobs = sessions.AddTo(cut.System.Blobs)
	require.NoError(s.t, s.be.Flush(cut))
	for p, st := range s.stores {
		st.Release(cut.Partitions[p])
	}
}
