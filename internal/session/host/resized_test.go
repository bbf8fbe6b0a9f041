package host

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/lease"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/raftlog"
	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/session"
	"github.com/stoa-kv/stoa/internal/store"
)

// resized is a server whose number of partitions changes after so many looks at its state.
type resized struct {
	*server
	looks         int
	before, after *State
}

func (s *resized) State() *State {
	if s.looks--; s.looks >= 0 {
		return s.before
	}
	return s.after
}

// onePartition is a state of a server, which doesn't lead in it.
func onePartition(s *server) *State {
	st := store.New(nil)
	st.SetApplied(1, 1)
	one := &State{Stores: []*store.Store{st}}
	m := placement.New(1)
	one.Machine = apply.New(apply.Config{Stores: one.Stores, Leases: lease.NewTable(), Placement: m, Sink: s, Observer: observer{s}})
	one.Machine.LoadMembership(membership.OfIDs(1), nil)
	var err error
	one.Replica, err = replica.New(replica.Config{
		ID: 1, Origin: 5000, ElectionTicks: electionTicks, HeartbeatTicks: 1, RequestTicks: requestTicks,
		Logs: []*raftlog.Log{raftlog.New(0, &raftpb.ConfState{Voters: []uint64{1}})}, Stores: one.Stores, Machine: one.Machine,
		Calls: replica.NewCalls(), Network: wire{s}, Disk: sound{}, Wake: func(int) {}, Closed: func(int, int64) {},
	})
	require.NoError(s.w.t, err)
	return one
}

// drive is the driver of a session that has seen revision 1.
func (s *resized) drive() *driver {
	of := &Session{of: s.sessions, sink: &client{w: s.w}, driven: true}
	d := &driver{s: of, server: s, cfg: &of.of.cfg}
	d.order = session.New(d, 1, 1)
	d.watches.init()
	return d
}

// readAll takes a read of all keys in.
func (d *driver) readAll(level stoapb.Level) *session.Op {
	all := &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}
	op := &session.Op{Seq: 1, Request: &session.Request{Kind: stoapb.Kind_RANGE, Level: level, Message: all}}
	d.accept(op)
	d.goOn()
	return op
}

// goOn takes in what has come for the run.
func (d *driver) goOn() {
	for _, a := range d.s.in.arrived {
		d.arrive(a)
	}
	d.s.in.arrived = nil
	if d.order.Advance(); len(d.s.in.arrived) > 0 {
		d.goOn()
	}
}

// Whenever the number of partitions changes while a read is planned and carried out, it is
// read from a state by which it was planned.
func TestReadsAreOfTheStateByWhichTheyArePlanned(t *testing.T) {
	for _, level := range []stoapb.Level{stoapb.Level_FAST, stoapb.Level_CAUSAL, stoapb.Level_STRICT} {
		for looks := range 20 {
			for _, grow := range []bool{false, true} {
				t.Run(fmt.Sprint(level, " ", looks, " ", grow), func(t *testing.T) {
					w := newWorld(t, 1, Config{RequestTimeout: time.Second})
					w.elect(w.servers[0])
					one := onePartition(w.servers[0])
					s := &resized{w.servers[0], looks, &w.servers[0].state, one}
					if grow {
						s.before, s.after = s.after, s.before
					}
					d := s.drive()
					op := d.readAll(level)
					require.NoError(t, op.Err)
					require.True(t, op.Done || level == stoapb.Level_STRICT && d.reads.wait.known.state == one, "it waits for no leader")
				})
			}
		}
	}
}

// A strict read waits while the leader has fewer partitions than this server, or there is none, and is then
// planned anew.
func TestStrictReadsWaitForFewerPartitions(t *testing.T) {
	for _, why := range []error{fault.Moved, fault.LeaderChanged} {
		w := newWorld(t, 1, Config{RequestTimeout: time.Second})
		s := &resized{w.servers[0], 1000, &w.servers[0].state, onePartition(w.servers[0])}
		d := s.drive()
		op := d.readAll(stoapb.Level_STRICT)
		d.arrive(arrival{d.reads.wait, why})
		require.False(t, op.Done)
		s.looks = 0
		w.wait(pauseBetween)
		d.goOn()
		require.False(t, op.Done)
		require.Equal(t, placement.All(1), d.reads.wait.parts)
	}
}
