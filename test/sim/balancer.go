package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/replica"
)

// balancer is mad: it asks for random slot tables, moves, pins and unpins at any time, whatever
// the load, at any server. Nothing of it may show to clients.
type balancer struct{ c *cluster }

func (b *balancer) think() {
	l := b.c.loop
	l.after(l.between(5*time.Millisecond, 300*time.Millisecond), "balancer", 0, 0, b.change)
}

func (b *balancer) change() {
	c := b.c
	if c.quiet {
		return
	}
	b.think()
	s := c.anyServer()
	if s.life == nil || s.life.paused > c.loop.now || s.life.core.joining() {
		return
	}
	m := s.life.core.machine
	w := b.draw(m.Placement())
	c.loop.printf("balancer asks server %d: %d %q to %d, %d slots", s.id, w.Op, w.Key, w.Partition, len(w.Slots))
	s.life.core.replica.Submit(&replica.Write{
		Command: command.Command{Kind: command.Place, User: c.own(), Body: w.AppendTo(nil)},
		Parts:   m.Placement().All(), System: true,
		Done: func(out replica.Outcome) {
			c.loop.printf("balancer: %v at server %d", out.Err, s.id)
			switch {
			case out.Err == nil:
				c.stats.Wishes++
			case errors.Is(out.Err, fault.Internal):
				c.fail("balancer", "%v", out.Err)
			}
		},
	})
}

// draw draws a wish: mostly such as concern keys that there are.
func (b *balancer) draw(m *placement.Map) command.Wish {
	l := b.c.loop
	w := command.Wish{Key: pick(l, b.pool()), Partition: l.rng.IntN(m.Partitions())}
	switch l.rng.IntN(6) {
	case 0:
		w.Op = command.MoveSlot
	case 1:
		w.Op = command.Pin
	case 2:
		w.Op = command.Unpin
		if pins := m.Pins(); len(pins) > 0 {
			w.Key = pick(l, pins)
		}
	default:
		w.Op, w.Key, w.Partition = command.Assign, "", 0
		for range pick(l, []int{1, 5, 200}) {
			slot := l.rng.IntN(placement.Slots)
			if l.chance(2) {
				slot = m.HashSlot([]byte(pick(l, b.pool())))
			}
			w.Slots = append(w.Slots, placement.Assignment{Slot: slot, Partition: l.rng.IntN(m.Partitions())})
		}
	}
	return w
}

// pool are keys and prefixes of keys that clients use, and of extensions'.
func (b *balancer) pool() []string {
	pool := append([]string{"/", "/a/", "/b/", "/a/x/deep/", manager, manager + "m0", "s0", "s1"}, b.c.keys.dirs...)
	pool = append(pool, b.c.keys.single...)
	for _, p := range b.c.keys.pairs {
		pool = append(pool, p[0], p[1])
	}
	return pool
}

// comparePlacements: all servers place keys alike (I6), also where their files say.
func (c *cluster) comparePlacements() {
	if c.failure != nil {
		return
	}
	text := func(s *server) string { return fmt.Sprintf("%x", s.life.core.machine.Placement().Encode()) }
	all := c.alive()
	equal := func() bool {
		for _, s := range all {
			if s.life == nil || text(s) != text(all[0]) {
				return false
			}
		}
		return true
	}
	if !c.waitFor(equalAfter, equal) {
		c.fail("I6", "the servers have different partition maps")
		return
	}
	for _, s := range all {
		m := s.life.core.machine.Placement()
		for p, st := range s.life.core.stores {
			st.Sizes([]byte{0}, []byte{0}, func(key []byte, _ int) {
				if at := m.Partition(key); at != p {
					c.fail("I6", "server %d has %q in partition %d, and the map says %d", s.id, key, p, at)
				}
			})
		}
	}
}
