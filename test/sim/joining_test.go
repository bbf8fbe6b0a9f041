package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/replica"
)

// The leader is lost for good, with as many others as a majority can do without, while a server joins. Each
// of the servers that are left lacks the log of another group from before the change on, and knows that all
// others have followed: it waits at the rendezvous for the group whose log only the others have.
func TestAServerJoinsAndTheLeaderIsLost(t *testing.T) {
	for _, op := range []membership.Op{membership.Add, membership.AddLearner} {
		for _, members := range []int{3, 4, 5} {
			for seed := range uint64(max(4, *runs/10)) {
				o := options(t, seed)
				o.Servers, o.Partitions, o.Members = members, 4, true
				o.script = func(c *cluster) { c.joinAndLose(op) }
				require.NoError(t, Run(o).Failure, "%v, %d members, seed %d", op, members, seed)
			}
		}
	}
}

func (c *cluster) joinAndLose(op membership.Op) {
	if !c.begin() {
		return
	}
	leader, minority := c.leader(), (len(c.servers)-1)/2
	others := slices.DeleteFunc(slices.Clone(c.servers), func(s *server) bool { return s == leader })
	lost, stay := append(others[:minority-1:minority-1], leader), others[minority-1:]
	lacks := map[*server]int{} // a group
	for i, s := range stay {
		lacks[s] = i%(c.partitions-1) + 1
	}
	c.net.withholds = func(to *server, m message) bool {
		group, one := lacks[to]
		return one && m.raft != nil && m.group == group && m.raft.GetType() == raftpb.MsgApp
	}
	newcomer := c.addServer()
	newcomer.due = true // it isn't started before one of those that stay has it in its list
	leader.life.core.changeMembers(changeOf(op, newcomer.id), func(error) {})
	if !c.waitFor(calmAfter, func() bool {
		return !slices.ContainsFunc(stay, func(s *server) bool { return !s.waitsWithSteps(lacks[s]) })
	}) {
		c.fail("liveness", "the servers that stay don't hear that the groups have followed")
		return
	}
	for _, s := range lost {
		c.losesMember(s)
	}
	c.net.withholds = nil
	newcomer.due = false
	c.completes()
}

// A server joins one whose number of partitions has changed, and that loses its power twice: when group 0, which is the
// last, has not even proposed its step, and once the file has those of the others. These have no leader then without
// the vote of the newcomer, which begins with the partitions with which the cluster began.
func TestAServerJoinsAResizedOneThatIsLost(t *testing.T) {
	inSomeRuns(t, "group 0 alone has a leader", func(o *Options) { o.Servers, o.Partitions, o.Members = 1, 2, true }, (*cluster).joinResized)
}

// joinResized reports whether the newcomer's vote was needed in groups that it hasn't.
func (c *cluster) joinResized() (met bool) {
	if !c.begin() {
		return false
	}
	first := c.leader()
	resize := command.Command{Kind: command.Resize, User: c.own(), Body: command.AppendResize(nil, 4)}
	first.life.core.replica.Submit(&replica.Write{Command: resize, Parts: first.life.core.machine.Placement().All(), System: true, Done: func(replica.Outcome) {}})
	if !c.waitFor(calmAfter, func() bool { return len(first.life.core.stores) == 4 && first.life.core.replica.Leading() }) {
		c.fail("liveness", "there are no four partitions")
		return false
	}
	newcomer := c.addServer()
	newcomer.due = true // it isn't started before it is needed
	first.life.core.changeMembers(changeOf(membership.Add, newcomer.id), func(error) {})
	for end := c.loop.now + calmAfter; c.loop.now < end && first.groupsWith(newcomer.id) == 0; {
		c.until(5 * time.Microsecond)
	}
	first.powerOff()
	first.start()
	c.until(time.Second) // the steps in its log are carried out, and the file has them
	first.powerOff()
	first.start()
	met = first.life != nil && first.groupsWith(newcomer.id) == 3 && !first.life.core.knowsStep(0)
	newcomer.due = false
	newcomer.start()
	c.completes()
	return met
}

// groupsWith is how many groups have a server in their configurations, none if group 0 is one of them.
func (s *server) groupsWith(id uint64) (n int) {
	for p, config := range s.life.core.machine.Configurations() {
		if !slices.Contains(config.Voters, id) {
			continue
		}
		if p == 0 {
			return 0
		}
		n++
	}
	return n
}

// waitsWithSteps reports whether a server knows all groups but 0 and one more to have followed, and has applied
// none of that.
func (s *server) waitsWithSteps(but int) bool {
	core := s.life.core
	for p := 1; p < s.c.partitions; p++ {
		if p != but && !core.knowsStep(p) {
			return false
		}
	}
	return core.machine.Membership().Generation == 0
}

// knowsStep reports whether a group has a step that is committed and isn't applied.
func (c *core) knowsStep(p int) bool {
	commit, applied := c.replica.Progress(p)
	for i := applied + 1; i <= commit; i++ {
		if e, err := c.logs[p].Entry(i); err == nil && e.GetType() != raftpb.EntryNormal {
			return true
		}
	}
	return false
}

// completes requires of the servers that are left that they complete the change, and the checks of other runs.
func (c *cluster) completes() {
	complete := func() bool {
		s := c.leader()
		if s.life == nil || !s.life.core.replica.Leading() {
			return false
		}
		list := s.life.core.machine.Membership()
		return list.Generation > 0 && membership.Sealed(list, s.life.core.machine.Configurations())
	}
	if !c.waitFor(equalAfter, complete) {
		c.fail("liveness", "no leader completes the change")
		return
	}
	c.finish()
}

// A new server is handed the groups that have it, while the others have stopped in front of the step that brings it
// in. It leads groups without all the rest, and the cluster gets out of that. The order in which groups follow (M1) leaves
// nothing to hand over where the others are those but group 0.
func TestANewcomerIsHandedSomeGroups(t *testing.T) {
	for name, stops := range map[string]func(group int) bool{
		"group 0 has stopped":     func(group int) bool { return group == 0 },
		"group 0 has not stopped": func(group int) bool { return group != 0 },
	} {
		for seed := range uint64(max(4, *runs/10)) {
			o := options(t, seed)
			o.Servers, o.Partitions, o.Members = 3, 3, true
			o.script = func(c *cluster) { c.handOverEarly(stops) }
			require.NoError(t, Run(o).Failure, "%s, seed %d", name, seed)
		}
	}
}

// handOverEarly adds a server, stops some groups once that is decided, and hands it the others.
func (c *cluster) handOverEarly(stops func(group int) bool) {
	if !c.begin() {
		return
	}
	const stop = time.Second
	leader, newcomer := c.leader().life.core, c.addServer()
	leader.changeMembers(changeOf(membership.Add, newcomer.id), func(error) {})
	c.loop.runUntil(c.loop.now+calmAfter, func() bool { return c.failed() || leader.machine.Membership().Generation > 0 })
	for p := range leader.stuck {
		if stops(p) {
			leader.stuck[p] = c.loop.now + stop
		}
	}
	c.net.withholds = func(_ *server, m message) bool { return m.raft != nil && stops(m.group) }
	end := c.loop.now + stop
	newcomer.start()
	c.loop.runUntil(end, func() bool { return c.failed() || c.hasJoined(newcomer, stops) })
	leader.replica.TransferAll(newcomer.id)
	c.until(end - c.loop.now)
	c.net.withholds = nil
	c.completes()
}

// hasJoined reports whether a server is in the configurations of all groups but those that have stopped.
func (c *cluster) hasJoined(s *server, stopped func(group int) bool) bool {
	for p := range c.partitions {
		if !stopped(p) && (s.life == nil || !s.life.core.machine.Configuration(p).Has(s.id)) {
			return false
		}
	}
	return true
}
