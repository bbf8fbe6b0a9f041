package sim

import (
	"time"

	"github.com/stoa-kv/stoa/internal/vfs"
)

// trouble injects faults, one after the other, until the run is quiet.
func (c *cluster) trouble() {
	c.later("trouble", c.loop.between(0, 2*c.plan.pause), func() {
		c.stats.Faults++
		t := c.draw()
		c.loop.printf("%s", t.name)
		t.happen(c)
		c.trouble()
	})
}

type trouble struct {
	weight int
	name   string
	happen func(*cluster)
}

var troubles = []trouble{
	{4, "a server is to be killed", (*cluster).killOne},
	{4, "the leader is to be killed", (*cluster).killLeader},
	{4, "a server is to lose its power", (*cluster).powerOffOne},
	{2, "all servers lose their power", (*cluster).powerOffAll},
	{2, "a disk fails", (*cluster).badDisk},
	{4, "a server is cut off", (*cluster).isolateOne},
	{3, "the leader is cut off", (*cluster).isolateLeader},
	{3, "the network is split", (*cluster).split},
	{4, "links are cut, one way each", (*cluster).cutLinks},
	{3, "links are slow", (*cluster).slowLinks},
	{3, "a server is paused", (*cluster).pauseOne},
	{3, "the leader is paused", (*cluster).pauseLeader},
	{6, "a group is stuck", (*cluster).stickGroup},
	{6, "a group of the leader is stuck", (*cluster).halfPropose},
	{3, "a disk is slow", (*cluster).slowDisk},
	{3, "the leader hands over", (*cluster).handOver},
	{1, "a clock runs differently", (*cluster).skew},
}

// rarerTroubles are those that only runs with some of all have (features.go).
var rarerTroubles = []trouble{
	{2, "all servers are paused", (*cluster).pauseAll},
	{2, "a server crashes over and over", (*cluster).crashLoop},
	{2, "some servers lose their power", (*cluster).powerOffSome},
	{2, "all disks are slow", (*cluster).slowDisks},
	{3, "the leader hands over again and again", (*cluster).handOvers},
}

func (c *cluster) draw() trouble {
	return weighed(c.loop, c.has.troubles, func(t trouble) int { return t.weight })
}

func (c *cluster) anyServer() *server { return pick(c.loop, c.servers) }

// leader is the server that stamps, or any.
func (c *cluster) leader() *server {
	for _, s := range c.servers {
		if s.life != nil && s.life.core.replica.Leading() {
			return s
		}
	}
	return c.anyServer()
}

func (c *cluster) kill(s *server) {
	if s.life != nil {
		c.stats.Crashes++
		s.kill()
		c.restartLater(s)
	}
}

func (c *cluster) killOne()    { c.kill(c.anyServer()) }
func (c *cluster) killLeader() { c.kill(c.leader()) }

func (c *cluster) powerOffOne() { c.powerOff(c.anyServer()) }

func (c *cluster) powerOff(s *server) {
	up := s.life != nil
	c.stats.Crashes++
	s.powerOff()
	if up {
		c.restartLater(s)
	}
}

func (c *cluster) powerOffAll() {
	for _, s := range c.servers {
		c.powerOff(s)
	}
}

func (c *cluster) powerOffSome() {
	for _, s := range c.servers {
		if c.loop.chance(2) {
			c.powerOff(s)
		}
	}
}

// crashLoop kills a server a few times, each time soon after it has started.
func (c *cluster) crashLoop() {
	s := c.anyServer()
	c.repeatedly(5, 300*time.Millisecond, "crash again", s.id, func() { pick(c.loop, []func(*server){c.kill, c.powerOff})(s) })
}

// repeatedly does something three times and up to as many more, until the run is quiet, with pauses of at most so long.
func (c *cluster) repeatedly(more int, pause time.Duration, what string, id uint64, do func()) {
	for at, n := time.Duration(0), 3+c.loop.rng.IntN(more); n > 0; n-- {
		at += c.loop.between(0, pause)
		c.loop.after(at, what, id, 0, func() {
			if !c.quiet {
				do()
			}
		})
	}
}

func (c *cluster) badDisk() {
	s := c.anyServer()
	s.badDisk = pick(c.loop, []vfs.Op{
		vfs.OpSync, vfs.OpSync, vfs.OpWrite, vfs.OpCreate, vfs.OpPreallocate, vfs.OpRename, vfs.OpRemove, vfs.OpSyncDir,
	})
	c.loop.printf("the next %s of server %d fails", s.badDisk, s.id)
}

// forAWhile undoes something later.
func (c *cluster) forAWhile(undo func()) {
	d := c.loop.between(20*time.Millisecond, time.Second)
	if c.loop.chance(8) {
		d *= 3
	}
	c.loop.printf("for %v", d)
	c.loop.after(d, "relief", 0, 0, undo)
}

func (c *cluster) cut(links []*link) {
	for _, l := range links {
		c.net.setCut(l, true)
	}
	c.forAWhile(func() {
		for _, l := range links {
			c.net.setCut(l, false)
		}
	})
}

func (c *cluster) isolate(s *server) {
	c.loop.printf("server %d is isolated", s.id)
	var links []*link
	c.net.each(func(l *link) {
		if l.from == s || l.to == s {
			links = append(links, l)
		}
	})
	c.cut(links)
}

func (c *cluster) isolateOne()    { c.isolate(c.anyServer()) }
func (c *cluster) isolateLeader() { c.isolate(c.leader()) }

// split puts each server on one of two sides.
func (c *cluster) split() {
	side := map[*server]bool{}
	for _, s := range c.servers {
		side[s] = c.loop.chance(2)
	}
	var links []*link
	c.net.each(func(l *link) {
		if side[l.from] != side[l.to] {
			links = append(links, l)
		}
	})
	c.loop.printf("the network is split: %d links", len(links))
	c.cut(links)
}

// cutLinks cuts some links, each in one direction.
func (c *cluster) cutLinks() {
	var links []*link
	c.net.each(func(l *link) {
		if c.loop.chance(3) {
			c.loop.printf("the link from %d to %d is cut", l.from.id, l.to.id)
			links = append(links, l)
		}
	})
	c.cut(links)
}

func (c *cluster) slowLinks() {
	var slow []*link
	d := c.loop.between(5*time.Millisecond, 150*time.Millisecond)
	c.net.each(func(l *link) {
		if c.loop.chance(3) {
			c.loop.printf("the link from %d to %d is slower by %v", l.from.id, l.to.id, d)
			l.slow = d
			slow = append(slow, l)
		}
	})
	c.forAWhile(func() {
		for _, l := range slow {
			l.slow = 0
		}
	})
}

func (c *cluster) pause(s *server) {
	if s.life != nil {
		d := c.loop.between(10*time.Millisecond, 600*time.Millisecond)
		c.loop.printf("server %d is paused for %v", s.id, d)
		s.life.paused = c.loop.now + d
	}
}

func (c *cluster) pauseOne()    { c.pause(c.anyServer()) }
func (c *cluster) pauseLeader() { c.pause(c.leader()) }

func (c *cluster) pauseAll() {
	for _, s := range c.servers {
		c.pause(s)
	}
}

// stickGroup keeps one group of a server from working, so that another server
// comes to lead it.
func (c *cluster) stickGroup() {
	s := c.anyServer()
	if c.loop.chance(2) {
		s = c.leader()
	}
	if s.life != nil {
		p := c.loop.rng.IntN(len(s.life.core.stuck))
		d := c.loop.between(10*time.Millisecond, 500*time.Millisecond)
		c.loop.printf("group %d of server %d is stuck for %v", p, s.id, d)
		s.life.core.stuck[p] = c.loop.now + d
	}
}

// halfPropose sticks one of the leader's groups and takes the leader away soon
// after: the other groups' logs have rendezvous that this one's lacks.
func (c *cluster) halfPropose() {
	s := c.leader()
	if s.life == nil {
		return
	}
	p := c.loop.rng.IntN(len(s.life.core.stuck))
	c.loop.printf("group %d of server %d is stuck until the server is taken away", p, s.id)
	s.life.core.stuck[p] = c.loop.now + 200*time.Millisecond
	away := pick(c.loop, []func(*server){c.kill, c.isolate, c.pause, c.powerOff})
	c.loop.after(c.loop.between(2*time.Millisecond, 60*time.Millisecond), "take away", s.id, 0, func() { away(s) })
}

func (c *cluster) slowDisks() {
	for _, s := range c.servers {
		c.slow(s)
	}
}

func (c *cluster) slowDisk() { c.slow(c.anyServer()) }

func (c *cluster) slow(s *server) {
	s.slowDisk = c.loop.between(10*time.Millisecond, 300*time.Millisecond)
	c.loop.printf("each sync of server %d takes %v longer", s.id, s.slowDisk)
	c.forAWhile(func() { s.slowDisk = 0 })
}

func (c *cluster) handOver() {
	if s := c.leader(); s.life != nil && s.life.paused <= c.loop.now {
		to := c.anyServer()
		c.loop.printf("server %d hands over to %d", s.id, to.id)
		s.life.core.replica.TransferAll(to.id)
	}
}

func (c *cluster) handOvers() { c.repeatedly(10, 50*time.Millisecond, "hand over", 0, c.handOver) }

func (c *cluster) skew() {
	s := c.anyServer()
	s.rate = 0.7 + 0.8*c.loop.rng.Float64()
	c.loop.printf("a second of server %d is %.2f s", s.id, s.rate)
}

// hasten ends what is slow.
func (c *cluster) hasten() {
	c.net.heal()
	c.plan.flushing, c.plan.transfer = usualFlush, usualTransfer
}

// heal ends all faults. With lossy plans a minority never restarts.
func (c *cluster) heal() {
	c.loop.printf("everything heals")
	c.hasten()
	lost := 0
	if c.plan.lossy {
		lost = c.loop.rng.IntN((len(c.servers)+1)/2 + 1)
		lost = min(lost, (len(c.servers)-1)/2)
	}
	for _, i := range c.loop.rng.Perm(len(c.servers)) {
		s := c.servers[i]
		s.slowDisk, s.badDisk = 0, ""
		if s.life != nil {
			s.life.paused = 0
			clear(s.life.core.stuck)
		}
		switch {
		case lost > 0:
			lost--
			s.kill()
			s.lost = true
			c.loop.printf("server %d is lost for good", s.id)
		case s.life == nil && (s.lives > 0 || !s.joins):
			s.start()
		}
	}
}
