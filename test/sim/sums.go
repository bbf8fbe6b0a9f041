package sim

import (
	"fmt"
	"strings"

	"github.com/stoa-kv/stoa/internal/store"
)

// compareSums: all servers have the same keys, by the sums of their stores (I6), whatever has
// been moved, taken back, compacted, loaded and installed on one of them alone.
func (c *cluster) compareSums() {
	if c.failure != nil || c.alike(sumsOf) {
		return
	}
	for _, s := range c.alive() {
		c.loop.printf("server %d: sums %s", s.id, sumsOf(s))
	}
	c.fail("I6", "the servers' sums of keys differ")
}

func sumsOf(s *server) string {
	var all store.Sums
	for _, st := range s.life.core.stores {
		sums := st.Sums()
		all.Add(&sums)
	}
	return fmt.Sprintf("%x", all)
}

// scrub compares memory with the file, as node's scrubber does. A state that has changed by itself may not be in the file: a
// cut of the same revision has been taken before.
func (c *core) scrub() {
	if c.l.sv.flip != nil {
		return
	}
	for _, s := range c.stores {
		var from []byte
		for more := true; more; more = from != nil {
			next, err := c.backend.Compare(s, from, 1<<20)
			if err != nil {
				c.l.sv.c.fail("scrub", "server %d: %v", c.l.sv.id, err)
				return
			}
			from = next
		}
	}
}

// compareDigests: all servers have the same state, by the digests that they would compare while
// they run (package check).
func (c *cluster) compareDigests() {
	if c.failure != nil || c.alike(digestOf) {
		return
	}
	first := c.alive()[0].life.core.machine.Digest()
	for _, s := range c.alive() {
		c.loop.printf("server %d: digest %s, differs in %q", s.id, digestOf(s), first.Differing(s.life.core.machine.Digest()))
	}
	c.fail("I6", "the servers' digests differ: %s", digestOf(c.alive()[0]))
}

// compareNumbers: all servers have the same numbers of leases, which a digest lacks below the level that brought them.
func (c *cluster) compareNumbers() {
	numbers := func(s *server) string {
		var b strings.Builder
		for _, l := range s.life.core.leases.List() {
			fmt.Fprintf(&b, "%x: %d, ", l.ID, l.Number)
		}
		return b.String()
	}
	if c.failure == nil && !c.alike(numbers) {
		c.fail("I6", "the servers' numbers of leases differ: %s", numbers(c.alive()[0]))
	}
}

func digestOf(s *server) string { return fmt.Sprintf("%x", s.life.core.machine.Digest()) }
