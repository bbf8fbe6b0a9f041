package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/membership"
)

// convergence bounds the time in which a change of members is completed, or found not to have been
// decided, after its leader was killed.
const convergence = 3 * electionTicks * tickInterval

// stepsOf is the progress of one change at the server that leads it.
type stepsOf struct {
	c      *core
	before uint64 // the generation
}

// A moment of a change, between two events of the simulation.
type moment struct {
	name string
	come func(stepsOf) bool
}

// moments are those of the design: the rendezvous is in some logs, it has decided, the groups
// propose and apply their steps, all have followed.
func moments(partitions int) (all []moment) {
	for n := 1; n <= partitions; n++ {
		all = append(all, moment{fmt.Sprintf("the rendezvous is in %d logs", n), func(s stepsOf) bool { return s.logged() >= n }})
	}
	all = append(all, moment{"it has decided", func(s stepsOf) bool { return s.c.machine.Membership().Generation > s.before }})
	for p := range partitions {
		all = append(all,
			moment{fmt.Sprintf("group %d has proposed its step", p), func(s stepsOf) bool { return s.proposed(p) || s.followed(p) }},
			moment{fmt.Sprintf("group %d has followed", p), func(s stepsOf) bool { return s.followed(p) }})
	}
	return append(all, moment{"all have followed", func(s stepsOf) bool { return s.c.replica.Settled() > s.before }})
}

func (s stepsOf) followed(p int) bool { return s.c.machine.Configuration(p).Generation > s.before }

func (s stepsOf) proposed(p int) bool {
	return s.holds(p, func(e *raftpb.Entry) bool { return e.GetType() != raftpb.EntryNormal })
}

// logged is the number of logs that have the rendezvous.
func (s stepsOf) logged() (n int) {
	for p := range s.c.logs {
		if s.c.machine.Membership().Generation > s.before || s.holds(p, decides) {
			n++
		}
	}
	return n
}

func decides(e *raftpb.Entry) bool { return carries(e, command.MemberChange) }

// holds reports whether the log has such an entry that isn't applied.
func (s stepsOf) holds(p int, such func(*raftpb.Entry) bool) bool {
	index, _ := s.c.stores[p].Applied()
	for index++; ; index++ {
		e, err := s.c.logs[p].Entry(index)
		if err != nil {
			return false
		}
		if such(e) {
			return true
		}
	}
}

// The leader is killed at each step of each kind of change, with the load of other runs, and
// stays away. The next one completes the change. Sometimes an election takes longer than usual, with
// a change of members or without one.
func TestTheLeaderIsKilledAtEachStep(t *testing.T) {
	const partitions = 4
	took := map[string][]time.Duration{}
	kill := func(op string, m moment, seed uint64) {
		r := Run(Options{Seed: seed, Servers: 5, Partitions: partitions, Members: true, script: func(c *cluster) {
			if d, came := c.killAt(op, m); came {
				took[op] = append(took[op], d)
			}
		}})
		require.NoError(t, r.Failure, "%s, %s", op, m.name)
	}
	for seed := range uint64(*runs / 2) {
		kill(baseline, moment{"there is no change", func(stepsOf) bool { return true }}, seed)
	}
	for op := range changesToKill {
		for i, m := range moments(partitions) {
			for n := range max(1, *runs/40) {
				kill(op, m, uint64(i+n))
			}
		}
	}
	for op, times := range took {
		slices.Sort(times)
		n := len(times)
		fmt.Printf("the leader killed during %q, %d times: another stamps, and the change is complete, after %v (median), %v (9 in 10), %v (longest)\n",
			op, n, times[n/2], times[n*9/10], times[n-1])
		require.Less(t, times[n/2], convergence, op)
		require.Less(t, times[n-1], 2*convergence, op)
	}
}

// baseline stands for no change.
const baseline = "none"

// changesToKill draw the change from the leader and a member that follows.
var changesToKill = map[string]func(c *cluster, leader, other uint64) membership.Change{
	"add": func(c *cluster, _, _ uint64) membership.Change { return changeOf(membership.Add, c.addServer().id) },
	"add a learner": func(c *cluster, _, _ uint64) membership.Change {
		return changeOf(membership.AddLearner, c.addServer().id)
	},
	"remove":            func(_ *cluster, _, other uint64) membership.Change { return changeOf(membership.Remove, other) },
	"remove the leader": func(_ *cluster, leader, _ uint64) membership.Change { return changeOf(membership.Remove, leader) },
}

func changeOf(op membership.Op, id uint64) membership.Change {
	return membership.Change{Op: op, Member: &pb.Member{ID: id}, MaxLearners: 1}
}

// killAt asks the leader for a change, kills it at a moment of that, and returns the time until
// another has completed it.
func (c *cluster) killAt(op string, m moment) (took time.Duration, came bool) {
	c.plan.loseOneIn, c.plan.repeatOneIn, c.plan.delay = 1<<30, 1<<30, time.Millisecond // time is measured
	for _, s := range c.servers {
		s.rate = 1
		s.start()
	}
	for _, cl := range c.clients {
		cl.think()
	}
	if !c.waitFor(calmAfter, c.led) {
		c.fail("liveness", "there is no leader")
		return 0, false
	}
	c.until(200 * time.Millisecond)
	old := c.leader()
	at := stepsOf{old.life.core, old.life.core.machine.Membership().Generation}
	if op != baseline {
		at.c.changeMembers(changesToKill[op](c, old.id, old.id%5+1), func(error) {})
	}
	end := c.loop.now + equalAfter
	c.loop.runUntil(end, func() bool { return c.failed() || m.come(at) })
	if c.failure != nil || !m.come(at) {
		if list := at.c.machine.Membership(); list.Find(old.id) != nil { // one that was removed hears of the first steps alone
			c.fail("liveness", "%s: it never comes that %s", op, m.name)
		}
		return 0, false
	}
	decided := at.c.machine.Membership().Generation > at.before
	old.kill()
	old.lost = true
	killed := c.loop.now
	complete := func() bool {
		s := c.leader()
		if s.life == nil || !s.life.core.replica.Leading() {
			return false
		}
		list := s.life.core.machine.Membership()
		return (list.Generation > at.before || !decided) && membership.Sealed(list, s.life.core.machine.Configurations())
	}
	if !c.waitFor(equalAfter, complete) {
		c.fail("liveness", "%s: the leader was killed when %s, and no other completes the change", op, m.name)
	}
	return c.loop.now - killed, true
}
