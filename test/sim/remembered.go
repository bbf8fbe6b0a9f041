package sim

import (
	"fmt"
	"strings"
)

// compareSessions: all servers remember the same of the clients' sessions, in every
// partition (I6).
func (c *cluster) compareSessions() {
	if c.failure != nil || c.alike(sessionsOf) {
		return
	}
	for _, s := range c.alive() {
		for p := range s.life.core.stores {
			c.loop.printf("server %d, partition %d: sessions %x", s.id, p, s.life.core.machine.SessionsDigest(p))
		}
	}
	c.fail("I6", "the servers don't remember the same of the sessions")
}

// sessionsOf is what a server remembers, in all partitions.
func sessionsOf(s *server) string {
	var b strings.Builder
	for p := range s.life.core.stores {
		fmt.Fprintf(&b, "%x ", s.life.core.machine.SessionsDigest(p))
	}
	return b.String()
}

// alike waits until all servers run and of them something is equal; it reports whether that
// has come to be.
func (c *cluster) alike(of func(s *server) string) bool {
	return c.waitFor(equalAfter, func() bool {
		all := c.alive()
		for _, s := range all {
			if s.life == nil || of(s) != of(all[0]) {
				return false
			}
		}
		return true
	})
}
