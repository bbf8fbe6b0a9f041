package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/replica"
)

// The bounds of a cluster that changes its members.
const (
	mostMembers = 6
	mostServers = 12 // that a run ever has
	mostLearner = 2
)

// operator changes the members of the cluster, one change after the other, whatever state
// the servers are in. It is bold: it doesn't ask, as servers do for their clients, whether
// the others are up or a learner has caught up.
type operator struct {
	c       *cluster
	configs map[configAt]string // each group's configuration after each of its steps
	gone    []uint64            // members that are lost for good, to be removed next
	// asked counts changes, and known those that have settled or were refused: others may still come.
	asked, known int
	voters       int // after the last change that has settled
}

// configAt is a place in the history of a group's configurations.
type configAt struct {
	group  uint32 // its number
	number uint64
}

func newOperator(c *cluster) *operator {
	return &operator{c: c, configs: map[configAt]string{}, voters: len(c.servers)}
}

// busy says whether a change may still take effect, or is needed for a majority.
func (o *operator) busy() bool { return o != nil && (o.asked != o.known || len(o.gone) > 0) }

func (o *operator) think() {
	if o != o.c.operator { // of a cluster that was lost
		return
	}
	o.c.later("operator", o.c.loop.between(10*time.Millisecond, 600*time.Millisecond), o.change)
}

// change asks a member for a change and waits until it has settled, or for a while.
func (o *operator) change() {
	c := o.c
	s := c.anyServer()
	if s.life == nil || s.life.paused > c.loop.now {
		o.think()
		return
	}
	core, list := s.life.core, s.life.core.machine.Membership()
	change, ok := o.draw(list)
	if !ok {
		o.think()
		return
	}
	c.loop.printf("operator asks server %d: %v %d", s.id, change.Op, change.Member.GetID())
	if c.loop.chance(3) { // a group of the leader sticks between the steps, if it so happens
		c.loop.after(c.loop.between(0, 20*time.Millisecond), "trouble", 0, 0, c.halfPropose)
	}
	again := once(o.think)
	c.loop.after(2*time.Second, "operator's timeout", 0, 0, again)
	o.asked++
	voters := list.Voters()
	core.changeMembers(change, func(err error) {
		c.loop.printf("operator: %v %d at server %d: %v", change.Op, change.Member.GetID(), s.id, err)
		if err != nil {
			if !fault.Passing(err) && !errors.Is(err, fault.Timeout) {
				o.known++
			}
			again()
			return
		}
		list := core.machine.Membership()
		core.replica.AwaitSettled(list.Generation, func(err error) {
			if err == nil {
				o.settled(change, voters, list)
			}
			again()
		})
	})
}

// settled is called when a change has settled, with the voters before and the list since. A change
// of the voters is put to the test sometimes, if no other change may be under way, and the state of all is right: one
// that is wrong is a fault of its own.
func (o *operator) settled(change membership.Change, before []uint64, list *membership.List) {
	c := o.c
	o.known++
	o.voters = len(list.Voters())
	c.stats.MemberChanges++
	if !slices.Equal(before, list.Voters()) && o.known == o.asked && len(o.gone) == 0 && !c.flipped() && c.haveRun(list.Voters()) && c.loop.chance(2) {
		c.loop.after(0, "strike", 0, 0, func() { o.gone = c.strike(list, change) })
	}
}

// haveRun reports whether servers have been started: one that was added and never was is none that comes back.
func (c *cluster) haveRun(ids []uint64) bool {
	return !slices.ContainsFunc(ids, func(id uint64) bool { return c.servers[id-1].lives == 0 })
}

// few reports whether the members with a vote are too few for one of them to be outvoted. A server that has lost its
// power may know a list of more.
func (o *operator) few() bool { return o != nil && o.voters < 3 }

func once(fn func()) func() {
	done := false
	return func() {
		if !done {
			done = true
			fn()
		}
	}
}

// draw draws a change that fits a list of members.
func (o *operator) draw(list *membership.List) (change membership.Change, ok bool) {
	l := o.c.loop
	var learners []uint64
	for _, m := range list.Members {
		if m.GetIsLearner() {
			learners = append(learners, m.GetID())
		}
	}
	voters := list.Voters()
	o.gone = slices.DeleteFunc(o.gone, func(id uint64) bool { return list.Generation > 0 && list.Find(id) == nil })
	change.MaxLearners = mostLearner
	of := func(op membership.Op, id uint64) (membership.Change, bool) {
		change.Op, change.Member = op, &pb.Member{ID: id}
		return change, true
	}
	switch n := l.rng.IntN(10); {
	case len(voters) == 0:
		return change, false // it has joined and knows nothing yet
	case o.c.has.urls && l.chance(4):
		change.Op = membership.Update
		change.Member = &pb.Member{ID: pick(l, list.Members).GetID(), PeerURLs: []string{fmt.Sprint("http://", l.rng.IntN(20))}}
		return change, true
	case len(o.gone) > 0:
		return of(membership.Remove, o.gone[0])
	case n < 3 && len(learners) > 0:
		return of(membership.Promote, pick(l, learners))
	case n < 6 && len(list.Members) < mostMembers && len(o.c.servers) < mostServers:
		s := o.c.addServer()
		op := pick(l, []membership.Op{membership.Add, membership.AddLearner})
		return of(op, s.id)
	case o.c.flipped():
		return change, false // without one that is sound, the others may be no majority any more
	case len(voters) > 1 && l.chance(3):
		return of(membership.Remove, o.c.leader().id)
	case len(voters) > 1 || len(learners) > 0:
		id := pick(l, list.Members).GetID()
		return of(membership.Remove, id)
	}
	return change, false
}

// strike tests what a change of the voters has promised once it has settled: the present ones need no
// more than a majority of themselves, even if a minority, the leader among it, is lost for good, and all
// others lose their power before they hear of anything else.
func (c *cluster) strike(list *membership.List, change membership.Change) (gone []uint64) {
	c.stats.Strikes++
	if change.Op == membership.Remove {
		c.lose(c.servers[change.Member.GetID()-1])
	}
	voters, leader := list.Voters(), c.leader().id
	for _, id := range append([]uint64{leader}, without(voters, leader)...) {
		switch s := c.servers[id-1]; {
		case !slices.Contains(voters, id):
		case len(gone) < (len(voters)-1)/2:
			c.lose(s)
			gone = append(gone, id)
		default:
			c.powerOff(s)
		}
	}
	return gone
}

// lose ends a server for good.
func (c *cluster) lose(s *server) {
	c.loop.printf("server %d is lost for good", s.id)
	s.kill()
	s.lost = true
}

func without(ids []uint64, id uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(ids), func(i uint64) bool { return i == id })
}

// changeMembers submits a change.
func (c *core) changeMembers(change membership.Change, done func(error)) {
	body, err := change.Encode()
	if err != nil {
		c.l.sv.c.fail("members", "%v", err)
		return
	}
	c.replica.Submit(&replica.Write{
		Command: command.Command{Kind: command.MemberChange, User: c.l.sv.c.own(), Body: body}, Parts: c.machine.Placement().All(), System: true,
		Done: func(out replica.Outcome) { done(out.Err) },
	})
}

// addServer makes a machine. It starts once it is a member.
func (c *cluster) addServer() *server {
	s := newServer(c, uint64(len(c.servers)+1))
	s.joins = true
	c.servers = append(c.servers, s)
	c.net.connect(s)
	return s
}

// watchMembers checks what a server knows of the members, starts those that have been
// added, and ends a server that was removed, as others tell it.
func (l *life) watchMembers() {
	c := l.sv.c
	if c.operator == nil {
		return
	}
	l.after(50*time.Millisecond, "members", 0, l.watchMembers)
	list := l.core.machine.Membership()
	for _, m := range list.Members {
		if s := c.servers[m.GetID()-1]; s.life == nil && s.lives == 0 && !s.due {
			s.due = true
			c.restartLater(s)
		}
	}
	for p := range l.core.stores {
		config := l.core.machine.Configuration(p)
		at, now := configAt{l.core.groups.Number(p), config.Steps}, fmt.Sprintf("%d %d", config.Voters, config.Learners)
		if c.survivor == nil { // else the reset of the list changes it without a step
			now += fmt.Sprintf(" %d", config.Generation)
		}
		if was, known := c.operator.configs[at]; known && was != now && list.Generation > 0 {
			c.fail("I6", "after step %d of group %d server %d has the configuration %s, and another had %s", at.number, p, l.sv.id, now, was)
		} else if list.Generation > 0 {
			c.operator.configs[at] = now
		}
	}
	for _, s := range c.servers {
		if link := c.net.link(l.sv.id, s.id); s != l.sv && !link.cut && s.life != nil && s.life.hasRemoved(l.sv.id) {
			l.removed()
			return
		}
	}
}

// hasRemoved reports whether this server refuses another: one that all of its groups have
// let go.
func (l *life) hasRemoved(id uint64) bool {
	return slices.Contains(l.core.machine.Membership().Removed, id) && !slices.Contains(l.core.replica.Peers(), id)
}

// removed ends a server for good.
func (l *life) removed() {
	l.sv.c.loop.printf("server %d hears that it was removed", l.sv.id)
	l.sv.lost = true
	l.sv.kill()
}

// settle: soon after everything has healed, all members have followed the last change, and
// the servers that were removed have ended.
func (c *cluster) settle() {
	if c.operator == nil {
		return
	}
	var why string
	if !c.waitFor(equalAfter, func() bool { why = c.unsettled(); return why == "" }) {
		c.fail("liveness", "%v after everything has healed, %s", equalAfter, why)
	}
}

func (c *cluster) unsettled() string {
	leader := c.leader()
	if leader.life == nil || !leader.life.core.replica.Leading() {
		return "no server stamps"
	}
	newest := leader.life.core.machine.Membership() // it has applied all that was acknowledged
	for _, s := range c.alive() {
		if s.life == nil {
			return fmt.Sprintf("server %d doesn't run", s.id)
		}
		core := s.life.core
		switch {
		case newest.Find(s.id) == nil:
			return fmt.Sprintf("server %d hasn't heard that it was removed", s.id)
		case core.machine.Membership().Generation != newest.Generation || !membership.Sealed(newest, core.machine.Configurations()):
			return fmt.Sprintf("server %d has not followed generation %d of the members", s.id, newest.Generation)
		}
	}
	for _, m := range newest.Members {
		if s := c.servers[m.GetID()-1]; (s.lost || s.life == nil) && !slices.Contains(c.operator.gone, s.id) {
			return fmt.Sprintf("member %d doesn't run", s.id)
		}
	}
	return ""
}
