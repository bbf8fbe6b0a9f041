package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Trouble is one thing that a run does to its cluster beside the requests of clients: a fault,
// a change of members, a move, another state of a server. A run numbers them as they happen.
//
// A run can be repeated with some of them left out (Options.Only): the others then happen at
// the same times and draw the same. For that, each brings along the state that the sources of chance had
// when it happened in the whole run, and leaves behind the one that they had afterwards, whether it happens
// again or not. So nothing is drawn differently because one was left out, only because of what
// that has changed; and the whole run itself needs no generators but the one that it always had.
type Trouble struct {
	N      int           // its number in the whole run, from 1 on; 0: it didn't happen
	At     time.Duration // when
	Source string        // what decided on it
	Did    []string      // what the log of events says of it

	tie           uint64 // of its event
	before, after chance
}

func (t *Trouble) String() string {
	did := "nothing came of it"
	if len(t.Did) > 0 {
		did = strings.Join(t.Did, "; ")
	}
	return fmt.Sprintf("%4d %10.3fms  %s: %s", t.N, float64(t.At)/1e6, t.Source, did)
}

// chance is the state of all that a run draws from.
type chance struct {
	loop      rand.PCG
	elections rand.ChaCha8
}

func (c *cluster) chance() chance { return chance{*c.loop.source, *c.elections} }

func (c *cluster) resume(from chance) { *c.loop.source, *c.elections = from.loop, from.elections }

// later plans a trouble. Each source has one planned at a time. In a repeated run all are planned
// from the beginning: here it only draws what the whole run drew.
func (c *cluster) later(source string, d time.Duration, happen func()) {
	tie := c.loop.tie()
	if c.only != nil {
		c.sources[source] = happen
		return
	}
	t := &Trouble{At: c.loop.now + d, Source: source, tie: tie}
	c.troubles = append(c.troubles, t)
	c.loop.at(t.At, tie, source, 0, 0, func() {
		if c.quiet {
			return
		}
		c.happened++
		t.N = c.happened
		t.before = c.chance()
		t.after = t.before
		c.tell(t, happen)
		t.after = c.chance()
	})
}

// repeat plans the troubles of the whole run.
func (c *cluster) repeat(whole []*Trouble) {
	for _, w := range whole {
		t := *w
		t.N, t.Did = 0, nil
		c.troubles = append(c.troubles, &t)
		c.loop.at(t.At, t.tie, t.Source, 0, 0, func() {
			if c.quiet || w.N == 0 {
				return
			}
			c.resume(w.before)
			if happen := c.sources[w.Source]; happen != nil && slices.Contains(c.only, w.N) {
				t.N = w.N
				c.tell(&t, happen)
			}
			c.resume(w.after)
		})
	}
}

// tell lets a trouble happen, and notes what it says.
func (c *cluster) tell(t *Trouble, happen func()) {
	c.loop.said = &t.Did
	defer func() { c.loop.said = nil }()
	happen()
}

// happenedIn are the troubles that a run had, in their order.
func happenedIn(all []*Trouble) []*Trouble {
	list := slices.DeleteFunc(slices.Clone(all), func(t *Trouble) bool { return t.N == 0 })
	slices.SortFunc(list, func(a, b *Trouble) int { return a.N - b.N })
	return list
}
