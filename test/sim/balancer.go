package sim

import (
	"errors"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
)

// balancer is mad: it asks for random slot tables, moves, pins and unpins at any time, whatever
// the load, at any server. Nothing of it may show to clients.
func (c *cluster) madBalancer() *meddler {
	return &meddler{
		c: c, name: "balancer",
		draw: func(s *server) command.Command {
			w := c.drawWish(s.life.core.machine.Placement())
			c.loop.printf("balancer: %d %q to %d, %d slots", w.Op, w.Key, w.Partition, len(w.Slots))
			return command.Command{Kind: command.Place, User: c.own(), Body: w.AppendTo(nil)}
		},
		done: func(err error) {
			switch {
			case err == nil:
				c.stats.Wishes++
			case errors.Is(err, fault.Internal):
				c.fail("balancer", "%v", err)
			}
		},
	}
}

// drawWish draws a wish: mostly such as concern keys that there are.
func (c *cluster) drawWish(m *placement.Map) command.Wish {
	l := c.loop
	w := command.Wish{Key: pick(l, c.wishedKeys()), Partition: l.rng.IntN(m.Partitions())}
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
				slot = placement.HashSlot([]byte(pick(l, c.wishedKeys())))
			}
			w.Slots = append(w.Slots, placement.Assignment{Slot: slot, Partition: l.rng.IntN(m.Partitions())})
		}
	}
	return w
}

// wishedKeys are keys and prefixes of keys that clients use, and of extensions'.
func (c *cluster) wishedKeys() []string {
	pool := append([]string{"/", "/a/", "/b/", "/a/x/deep/", manager, manager + "m0", "s0", "s1"}, c.keys.dirs...)
	pool = append(pool, c.keys.single...)
	for _, p := range c.keys.pairs {
		pool = append(pool, p[0], p[1])
	}
	return pool
}

// comparePlacements: all servers place keys alike (I6), also where their files say.
func (c *cluster) comparePlacements() {
	if c.failure != nil {
		return
	}
	if !c.alike(func(s *server) string { return string(s.life.core.machine.Placement().Encode()) }) {
		c.fail("I6", "the servers have different partition maps")
		return
	}
	for _, s := range c.alive() {
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
