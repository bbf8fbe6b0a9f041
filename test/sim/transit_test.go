package sim

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/replica"
)

// A step of a transit divides a quota anew among all partitions, by what each has used. On one server the loop of a
// partition that takes no part in the transit has no processor, while it executes puts on the others before
// the step and behind it: where the step doesn't wait for that loop, it may then grow less.
func TestAStepDividesAQuota(t *testing.T) {
	inMostRuns(t, "the puts are answered while the loop has no processor", func(o *Options) { o.Servers, o.Partitions, o.Users = 3, 3, true }, (*cluster).stepBetweenPuts)
}

// stepBetweenPuts reports whether the last put was answered while the loop had no processor.
func (c *cluster) stepBetweenPuts() (met bool) {
	c.clients, c.sessions = nil, nil                                                              // their extensions would move keys, too
	c.plan.step = time.Hour                                                                       // the steps are these
	if !c.begin() || !c.await(func(done func(error)) { c.keeper.enable(func() { done(nil) }) }) { // without users no quota is in force
		return false
	}
	c.hush()
	leader := c.leader()
	ahead, behind := leader.life.core, c.servers[leader.id%uint64(len(c.servers))].life.core
	m := ahead.machine
	from := m.Placement().Partition([]byte("/moving/k"))
	to, still := (from+1)%3, (from+2)%3
	key := c.keyIn(ahead, still)
	step := func() bool {
		return c.await(func(done func(error)) { ahead.moveOn(2, func(o replica.Outcome) { done(o.Err) }) })
	}
	move := command.Wish{Op: command.Assign, Slots: []placement.Assignment{{Slot: m.Placement().Slot([]byte("/moving/k")), Partition: to}}}
	switch {
	case !c.puts(leader, "/moving/k0", "/moving/k1", "/moving/k2", "/moving/k3", "/moving/k4", "/moving/k5"):
		return false
	case !c.await(func(done func(error)) { // each partition may grow by two keys at first, and by one or two once two of these are used
		leader.life.write(command.Quota, &stoapb.QuotaChange{Prefix: []byte("/"), MaxKeys: 12}, auth.Own, true, func(_ proto.Message, err error) { done(err) })
	}):
		return false
	case !c.carriesOut(leader, command.Place, move.AppendTo(nil)):
		return false
	case !c.waitFor(time.Second, func() bool { return behind.machine.Placement().Transit() != nil }):
		return false
	}
	before, _ := behind.stores[still].Applied()
	behind.stuck[still] = c.loop.now + time.Second
	met = c.puts(leader, key+"a", key+"b") && step() && c.puts(leader, key+"c")
	after, _ := behind.stores[still].Applied()
	met = met && after == before && m.Placement().Transit() != nil
	c.until(time.Second)
	for m.Placement().Transit() != nil && step() {
	}
	c.finish()
	return met
}
