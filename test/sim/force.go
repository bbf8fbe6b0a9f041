package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/recovery"
	"github.com/stoa-kv/stoa/internal/store"
)

// survive ends a run in the midst of its troubles: one server is left, as --force-new-cluster
// is for. Whatever it has of the committed history must take effect, and nothing else may take
// its place, nor the place of what it then writes as a cluster of its own, when it crashes and is
// forced again. Then the cluster grows again. What clients were answered isn't compared:
// writes that the survivor never received are lost.
func (c *cluster) survive() {
	c.remain()
	for c.has.again && c.failure == nil && c.rounds < mostRounds {
		c.liveOn()
		if c.loop.chance(2) {
			c.converge()
			return
		}
		c.remain()
	}
}

// mostRounds is how often a cluster is lost but for one server, at most.
const mostRounds = 3

// liveOn has clients and troubles in the cluster that has grown from one server: another one may be all that is left of
// it next.
func (c *cluster) liveOn() {
	c.loop.printf("the cluster lives on")
	c.rounds++
	c.stats.LivedOn++
	c.quiet, c.survivor, c.plan.lossy = false, nil, false
	c.operator = newOperator(c)
	c.ledger.forced = false // all servers are equal: from here on, each has to apply the same again
	c.clients = nil
	for _, s := range c.servers {
		s.differed = false // nobody raises again what was lowered
	}
	if c.keeper != nil {
		c.keeper = &keeper{c: c, n: c.rounds * 1000}
	}
	c.drawClients(c.rounds * 10)
	c.startClients()
	c.troubled()
}

// remain ends a time of troubles with one server, or none, if there is a backup.
func (c *cluster) remain() {
	if b := c.saver.toRestore(); b != nil {
		c.restore(b)
		return
	}
	s := c.anyServer()
	if c.loop.chance(2) {
		s = c.fallBehind()
	}
	if c.resizer != nil {
		c.resizer.ask()
		c.until(c.loop.between(0, 20*time.Millisecond))
	}
	for s.lost || !s.hasState() || s.flip != nil { // nobody could tell, or heal it, any more
		s = c.anyServer()
	}
	c.leaveAlone(s, c.crash)
	each := c.plan.flush
	if c.loop.chance(2) {
		c.plan.flush = 10 * time.Second // a crash comes before the state has anything of this
	}
	s.start()
	cl := &client{c: c, id: 200, pinned: true, at: int(s.id - 1)}
	c.clients = append(c.clients, cl)
	for range c.loop.rng.IntN(4) { // a crash on the way, and the flag may be gone
		for end := c.loop.now + c.loop.between(0, 400*time.Millisecond); c.failure == nil && c.loop.now < end; {
			if cl.current == nil {
				cl.send(pick(c.loop, []func(*cluster) request{(*cluster).putSingle, (*cluster).putPair})(c))
			}
			c.until(c.loop.between(0, 5*time.Millisecond))
		}
		// An operator takes the flag away once the member is alone, or is about to be.
		onTheWay := s.life == nil || s.life.forcing
		c.crash(s)
		s.forced = c.loop.chance(2) || s.forced && onTheWay
		s.start()
	}
	c.plan.flush = each
	c.goesOn(s)
}

// leaveAlone loses all servers but one, which ends, too, and is to be forced.
func (c *cluster) leaveAlone(s *server, ends func(*server)) {
	c.loop.printf("server %d is the only one left", s.id)
	c.survivor = s
	c.hush()
	c.compareBackups()
	for _, o := range c.servers {
		if o != s {
			o.kill()
			o.lost = true
		}
	}
	ends(s)
	c.forgetClients()
	s.slowDisk, s.badDisk, s.forced = 0, "", true
}

// forgetClients ends the clients of a cluster that is lost.
func (c *cluster) forgetClients() {
	for _, cl := range c.clients {
		cl.current = nil
	}
	for _, w := range c.watchers {
		w.gone = true
	}
	for _, o := range c.history {
		if r, is := o.req.(*pb.CompactionRequest); is {
			c.compacted = max(c.compacted, r.Revision)
		}
	}
	c.clients, c.watchers, c.sessions, c.history, c.floor = nil, nil, nil, nil, 0
	c.operator = newOperator(c)
	c.hasten()
}

// goesOn requires that a server that was forced becomes a cluster, and grows.
func (c *cluster) goesOn(s *server) {
	if !c.waitFor(calmAfter, func() bool { return c.isAlone(s) }) {
		c.fail("liveness", "%v after it was forced, server %d is not a cluster of its own", calmAfter, s.id)
		return
	}
	s.forced = false
	c.calm()
	for range 2 {
		c.grow(s)
	}
	c.settle()
	c.calm()
	c.quiesce()
}

// fallBehind has a leader lose its place while it has writes in its logs that no other has. Then some of
// its groups follow the next leader, and the others do nothing, so that its logs are of
// different epochs.
func (c *cluster) fallBehind() *server {
	s := c.leader()
	cut := func(broken bool) {
		for _, o := range c.servers {
			if o != s {
				c.net.setCut(c.net.link(s.id, o.id), broken)
				c.net.setCut(c.net.link(o.id, s.id), broken)
			}
		}
	}
	cut(true)
	c.until(c.loop.between(200*time.Millisecond, 500*time.Millisecond))
	if s.life != nil {
		for p := range s.life.core.stuck {
			if c.loop.chance(2) {
				s.life.core.stuck[p] = c.loop.now + time.Second
			}
		}
	}
	cut(false)
	c.until(c.loop.between(10*time.Millisecond, 300*time.Millisecond))
	return s
}

// hasState reports whether the server has taken part, and so has the members.
func (s *server) hasState() bool {
	meta, err := s.file.Meta()
	return err == nil && s.lives > 0 && (!s.joins || len(meta.Members) > 0)
}

func (c *cluster) crash(s *server) {
	if c.loop.chance(2) {
		s.powerOff()
	} else {
		s.kill()
	}
}

func (c *cluster) isAlone(s *server) bool {
	if s.life == nil || !s.life.core.replica.Leading() {
		return false
	}
	list := s.life.core.machine.Membership()
	return len(list.Members) == 1 && list.Find(s.id) != nil && membership.Settled(list, s.life.core.machine.Configurations())
}

// grow adds a member to the survivor's cluster.
func (c *cluster) grow(s *server) {
	if c.failure != nil {
		return
	}
	added, done := c.addServer(), false
	var ask func()
	ask = func() {
		change := membership.Change{Op: membership.Add, Member: &pb.Member{ID: added.id}}
		s.life.core.changeMembers(change, func(err error) {
			if done = err == nil || change.TookEffect(err); !done {
				c.loop.after(50*time.Millisecond, "ask again", s.id, 0, ask)
			}
		})
	}
	ask()
	settled := func() bool {
		core := s.life.core
		return done && membership.Settled(core.machine.Membership(), core.machine.Configurations())
	}
	if !c.waitFor(equalAfter, settled) {
		c.fail("liveness", "server %d can't be added to the cluster of the survivor", added.id)
	}
}

// force makes the server the only member, if it was started for that.
func (c *core) force() error {
	s := c.l.sv
	if !s.forced || c.l.core != nil && !c.l.forcing {
		return nil
	}
	if len(c.members.List.Members) == 0 {
		return fmt.Errorf("server %d has no state", s.id)
	}
	had := s.c.ledger.leave(c)
	s.c.origins += 2
	f := recovery.Forced{Self: &pb.Member{ID: s.id}, Members: c.members, Epochs: c.epochs, Origin: s.c.origins, Logger: s.c.logger(s.id)}
	done, err := f.Force(c.wal, c.logs, c.stores)
	if err != nil {
		return err
	}
	c.l.forcing = !done
	for _, e := range had {
		if !c.has(e) {
			s.c.fail("I5", "server %d gives up entry %d of group %d, which was committed", s.id, e.index, e.group)
		}
	}
	return nil
}

// entryAt is a committed entry of a group, by its number.
type entryAt struct {
	group uint32
	logPlace
}

// has reports whether the server has an entry, in its state or in its log.
func (c *core) has(e entryAt) bool {
	p, is := c.groups.Partition(e.group)
	if !is {
		return c.groups.Gone(e.group) // all of it came before this generation
	}
	if applied, _ := c.stores[p].Applied(); e.index <= applied {
		return true
	}
	term, err := c.logs[p].Term(e.index)
	return err == nil && term == e.term
}

// leave reduces the committed history to what a server has of it, in the log of one of an entry's
// partitions at least, and returns the entries that it has.
func (g *ledger) leave(c *core) (had []entryAt) {
	g.forced = true
	kept := map[int64]bool{}
	for rev, e := range g.revisions {
		for p, at := range e.places {
			if entry := (entryAt{p, at}); c.has(entry) {
				kept[rev] = true
				had = append(had, entry)
			}
		}
	}
	lost := 0
	for p := range g.parts {
		var rest []*revision
		for _, e := range g.parts[p] {
			if kept[e.rev] {
				rest = append(rest, e)
			} else {
				lost++
				g.remove(e.rev)
			}
		}
		g.parts[p] = rest
	}
	for before := range g.systems {
		if !c.has(entryAt{0, g.systemPlaces[before]}) {
			delete(g.systems, before)
		}
	}
	g.c.stats.Lost += lost
	g.gaps = lost > 0
	g.c.loop.printf("server %d has all but %d revisions of the history", c.l.sv.id, lost)
	return had
}

// cut forgets what the only server has not applied: it may come to something else from
// here on, since it lacks, or has, entries that others had not, or had.
func (g *ledger) cut(r *reader) {
	for p, next := range r.next {
		for _, e := range g.parts[p][next:] {
			delete(e.in, p)
			if e.changes = nil; len(e.in) == 0 {
				g.remove(e.rev)
			}
			for _, q := range slices.Sorted(maps.Keys(e.in)) {
				e.changes = append(e.changes, e.in[q]...)
			}
			slices.SortFunc(e.changes, func(a, b store.Change) int { return cmp.Compare(a.Sub, b.Sub) })
		}
		g.parts[p] = g.parts[p][:next]
	}
}
