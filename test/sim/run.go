package sim

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/stoa-kv/stoa/internal/fault"
)

// Options say which run to make.
type Options struct {
	Seed                uint64
	Servers, Partitions int  // 0: the seed decides
	Members             bool // the members change; false: the seed decides
	Force               bool // one server is left at the end, and becomes a cluster of its own
	Versions            bool // the version of the cluster changes, too
	Balance             bool // slots move at random; false: the seed decides
	Resize              bool // the number of partitions changes at random; false: the seed decides
	Checks              bool // servers compare their states, and those of some change; false: the seed decides
	Users               bool // clients are users, whose rights change; false: the seed decides
	Files               bool // servers have real files, which are defragmented; false: the seed decides
	Swarm               bool // the run has only some of what runs can have: the seed decides for each (features.go)
	Mutation            Mutation
	Log                 io.Writer // gets every event; may be nil

	Only   []int         // the numbers of the troubles that happen (schedule.go); nil: all
	Length time.Duration // troubles and requests end at this time; 0: the seed decides
	Turns  []Turn        // in their order (turns.go)

	whole  []*Trouble     // of the run without Only, if they are known
	script func(*cluster) // in the place of the usual run
}

// Report is the result of a run.
type Report struct {
	Seed    uint64
	Trace   uint64 // equal for equal runs
	Stats   Stats
	Failure error  // nil if all checks passed
	Check   string // the name of the one that failed
	// Troubles are those of the run, in their order, and Length is how long they and requests went on.
	Troubles []*Trouble
	Length   time.Duration

	planned []*Trouble // also those that didn't happen any more
}

// Time limits once all faults have ended.
const (
	calmAfter  = 5 * time.Second  // until every server takes writes
	equalAfter = 10 * time.Second // until all servers and watches have everything
)

// Run makes one run. It replaces crypto/rand's source, where Raft draws its
// election timeouts: there can be one run at a time in a process.
func Run(o Options) (r Report) {
	if o.Only != nil && o.whole == nil {
		whole := o
		whole.Only, whole.Length, whole.Log = nil, 0, nil
		o.whole = Run(whole).planned
	}
	before := rand.Reader
	elections := mrand.NewChaCha8(electionSeed(o.Seed, 1))
	rand.Reader = elections
	defer func() { rand.Reader = before }()
	c := newCluster(o, o.Log)
	defer c.removeFiles()
	c.elections = elections
	c.takeTurns(o.Turns)
	r.Seed = o.Seed
	defer func() {
		if p := recover(); p != nil {
			c.fail("panic", "%v\n%s", p, debug.Stack())
		}
		c.stats.Pipelined, c.stats.Lagging = int(c.inSessions.Pipelined.Load()), int(c.inSessions.Lagging.Load())
		c.stats.Rerouted += int(c.inSessions.Rerouted.Load())
		c.stats.Simulated, c.stats.Events = c.loop.now, c.loop.count
		r.Trace, r.Stats, r.Failure, r.Check = c.loop.trace, c.stats, c.failure, c.violated
		r.Troubles, r.planned, r.Length = happenedIn(c.troubles), c.troubles, c.length
		if !c.quiet {
			r.Length = c.loop.now
		}
		if c.failure != nil {
			r.Failure = fmt.Errorf("seed %s (%d servers, %d partitions): %w", o.start(), c.stats.Servers, c.stats.Partitions, c.failure)
		}
	}()
	if o.script != nil {
		o.script(c)
	} else {
		c.run(o)
	}
	return r
}

func (c *cluster) run(o Options) {
	c.start()
	c.until(300 * time.Millisecond)
	c.repeat(o.whole)
	c.troubled()
	if c.force {
		c.survive()
		return
	}
	c.finish()
}

// troubled is a time of troubles.
func (c *cluster) troubled() {
	if c.has.members {
		c.operator.think()
	}
	if c.upgrader != nil {
		c.upgrader.think()
	}
	if c.keeper != nil {
		c.keeper.begin()
	}
	for _, m := range []*meddler{c.balancer, c.resizer, c.alarms} {
		if m != nil {
			m.think()
		}
	}
	if c.has.alarms && c.rounds == 0 {
		c.lower()
	}
	if c.checkTicks > 0 {
		c.flips()
		if c.rounds == 0 {
			c.disarm()
		}
	}
	if c.files != nil {
		c.defragmenter()
	}
	c.trouble()
	length := c.plan.trouble
	if c.most > 0 {
		length = min(length, c.most-c.loop.now)
	}
	c.until(length)
}

// start starts all servers and clients.
func (c *cluster) start() {
	for _, s := range c.servers {
		s.start()
	}
	c.startClients()
}

func (c *cluster) startClients() {
	for _, cl := range c.clients {
		cl.think()
	}
	for _, w := range c.watchers {
		c.loop.after(c.loop.between(0, 500*time.Millisecond), "connect", uint64(w.id), 0, w.connect)
		w.ask()
		w.change()
	}
	for _, cl := range c.sessions {
		cl.live()
	}
	if c.saver != nil {
		c.saver.think()
	}
}

// finish ends all faults, and checks the run.
func (c *cluster) finish() {
	if c.converge(); c.failure == nil {
		c.check()
	}
}

// converge ends all faults, and requires that all servers come to the same.
func (c *cluster) converge() {
	c.hush()
	c.heal()
	c.settle()
	if c.checkTicks > 0 {
		c.rise()
	}
	if !c.waitFor(equalAfter, c.whole) {
		c.fail("liveness", "%v after everything has healed, a server is fenced", equalAfter)
		return
	}
	if !c.waitFor(equalAfter, c.told) {
		c.fail("alarm", "%v after everything has healed, a server that differed has not raised the alarm", equalAfter)
		return
	}
	c.calm()
	if !c.waitFor(equalAfter, c.leasesEnd) {
		c.fail("liveness", "%v after everything has healed, a lease ends and ends", equalAfter)
	}
	c.quiesce()
	c.agree()
}

// hush ends troubles and requests.
func (c *cluster) hush() { c.quiet, c.length = true, c.loop.now }

func (c *cluster) failed() bool { return c.failure != nil }

func (c *cluster) until(d time.Duration) { c.loop.runUntil(c.loop.now+d, c.failed) }

// waitFor lets time go on until something is so.
func (c *cluster) waitFor(d time.Duration, so func() bool) bool {
	end := c.loop.now + d
	for c.failure == nil && c.loop.now < end {
		if so() {
			return true
		}
		c.until(5 * time.Millisecond)
	}
	return c.failure == nil && so()
}

// alive are the servers that run.
func (c *cluster) alive() []*server {
	var all []*server
	for _, s := range c.servers {
		if !s.lost && (s.lives > 0 || s.due) {
			all = append(all, s)
		}
	}
	return all
}

// calm: soon after everything has healed, writes to one partition and to
// several and reads of all succeed through every server.
func (c *cluster) calm() {
	for _, s := range c.alive() {
		cl := &client{c: c, id: 100 + int(s.id), pinned: true, at: int(s.id - 1)}
		c.clients = append(c.clients, cl)
		for _, ask := range []func(*cluster) request{(*cluster).putSingle, (*cluster).putPair, (*cluster).listPairs} {
			var last *op
			done := c.waitFor(calmAfter, func() bool {
				if last != nil && errors.Is(last.err, fault.QuotaExceeded) {
					return true
				}
				if last == nil || last.state == unknown || last.state == refused {
					last = cl.send(ask(c))
				}
				return last.state == ok || s.lost // removed meanwhile
			})
			if !done {
				c.fail("liveness", "%v after everything has healed, server %d doesn't answer: %v", calmAfter, s.id, last)
				return
			}
		}
	}
	if c.saver != nil {
		c.saver.calm()
	}
}

// quiesce: all servers become equal, all requests are answered, and all watches
// get progress through the last revision.
func (c *cluster) quiesce() {
	if !c.waitFor(equalAfter, c.sessionsDone) {
		c.fail("liveness", "%v after everything has healed, sessions wait for replies", equalAfter)
		return
	}
	last := c.floor
	if !c.waitFor(equalAfter, c.equal) {
		c.fail("liveness", "%v after everything has healed, the servers have not applied the same", equalAfter)
		return
	}
	for _, s := range c.alive() {
		c.ledger.compare(s.life.core)
	}
	c.compareRegistries()
	c.compareQuotas()
	c.comparePlacements()
	c.compareSessions()
	c.compareSums()
	c.compareDigests()
	c.compareNumbers()
	c.compareBackups()
	if !c.waitFor(equalAfter, func() bool { return c.watchersAt(last) == nil }) {
		d := c.watchersAt(last)
		c.fail("I4", "%s is at revision %d, and hears nothing of revision %d", d, d.next, last)
		return
	}
	if !c.waitFor(equalAfter, func() bool { return c.sessionWatchesAt(last) == nil }) {
		d := c.sessionWatchesAt(last)
		c.fail("I4", "%s of a session is at revision %d, and hears nothing of revision %d", d, d.next, last)
		return
	}
	if !c.waitFor(requestTicks*tickInterval*2, func() bool { return c.unanswered() == nil }) {
		c.fail("liveness", "%s was never answered", c.unanswered())
	}
}

// equal says whether all servers have applied everything that any has.
func (c *cluster) equal() bool {
	for _, s := range c.alive() {
		if s.life == nil {
			return false
		}
		for p := range c.ledger.parts {
			if s.life.core.seen.next[p] < len(c.ledger.parts[p]) {
				return false
			}
		}
	}
	return true
}

// watchersAt returns a watch that hasn't reached a revision.
func (c *cluster) watchersAt(rev int64) *watched {
	for _, w := range c.watchers {
		for _, d := range w.watches {
			if d.next <= rev {
				return d
			}
		}
	}
	return nil
}

// unanswered returns a request that reached a process which lives and has not
// answered it.
func (c *cluster) unanswered() *op {
	for _, o := range c.history {
		if o.life != nil && !o.life.ended && !o.answered {
			return o
		}
	}
	return nil
}
