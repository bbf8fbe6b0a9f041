package sim

// compareSessions: all servers remember the same of the clients' sessions, in every
// partition (I6).
func (c *cluster) compareSessions() {
	if c.failure != nil || c.waitFor(equalAfter, c.sessionsEqual) {
		return
	}
	for _, s := range c.alive() {
		for p := range c.partitions {
			c.loop.printf("server %d, partition %d: sessions %x", s.id, p, s.life.core.machine.SessionsDigest(p))
		}
	}
	c.fail("I6", "the servers don't remember the same of the sessions")
}

func (c *cluster) sessionsEqual() bool {
	all := c.alive()
	for p := range c.partitions {
		for _, s := range all {
			if s.life == nil || s.life.core.machine.SessionsDigest(p) != all[0].life.core.machine.SessionsDigest(p) {
				return false
			}
		}
	}
	return true
}
