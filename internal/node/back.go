package node

import "github.com/stoa-kv/stoa/internal/placement"

// reached is how far a core had come when another took its place: what serializable reads here have shown, and what
// the writes were answered with that were made here. A snapshot may take some partitions, and users and roles, back
// behind that, until the log has been executed again.
type reached struct {
	visible  []int64  // by partition
	executed []uint64 // likewise, an index of the log that holds that
	auth     uint64   // the revision of users and roles
}

// reached is called when nothing is executed any more.
func (c *core) reached() *reached {
	r := &reached{visible: make([]int64, len(c.stores)), executed: make([]uint64, len(c.stores)), auth: c.machine.Auth().Revision}
	for p := range c.stores {
		r.visible[p], r.executed[p] = c.visible(p), c.replica.Executed(p)
	}
	if before := c.before.Load(); before != nil { // perhaps this core hasn't come that far again
		r.auth = max(r.auth, before.auth)
		for p := range before.visible {
			r.visible[p], r.executed[p] = max(r.visible[p], before.visible[p]), max(r.executed[p], before.executed[p])
		}
	}
	return r
}

// follows notes what reads of this core must not be behind. A later generation of groups is ahead of all that an
// earlier one has shown, and has other partitions.
func (c *core) follows(old *core) {
	if c.groups.Generation == old.groups.Generation {
		c.before.Store(old.reached())
	}
}

// executed has the logs say that what another core has executed is committed: this one gets as far again though there is no leader any more
// who says so.
func (c *core) executed(before *core) {
	r := before.reached()
	for p, log := range c.logs {
		if was, is := before.groups.Partition(c.groups.Number(p)); is {
			log.Commit(r.executed[was])
		}
	}
}

// regain has partitions closed through what reads must show, once that is executed: a partition in which nothing has been written since says by
// no entry of its log how far the others were.
func (c *core) regain() {
	before := c.before.Load()
	if before == nil {
		return
	}
	for p, rev := range before.visible {
		c.replica.Regain(p, before.executed[p], rev)
	}
}

// back reports whether serializable reads of the partitions show all that those before have shown. Once all partitions do, it
// isn't asked any more.
func (c *core) back(parts placement.Set) bool {
	before := c.before.Load()
	if before == nil {
		return true
	}
	if c.shows(before, placement.All(len(before.visible))) {
		c.before.Store(nil)
		return true
	}
	return c.shows(before, parts)
}

// owes is the opposite of back, for sessions.
func (c *core) owes(parts placement.Set) bool { return !c.back(parts) }

// informed reports whether users and roles are those of before, or later ones, and whether they are enforced likewise: that has no revision. All
// partitions execute what changes them.
func (c *core) informed() bool {
	before := c.before.Load()
	return before == nil || c.knows(before)
}

func (c *core) knows(before *reached) bool {
	return c.machine.Auth().Revision >= before.auth && c.replica.Executed(0) >= before.executed[0]
}

func (c *core) shows(before *reached, parts placement.Set) bool {
	if !c.knows(before) {
		return false
	}
	for p := range parts.Each() {
		if c.visible(p) < before.visible[p] {
			return false
		}
	}
	return true
}

// visible is the revision at which reads see a partition.
func (c *core) visible(p int) int64 {
	s := c.stores[p]
	s.RLock()
	defer s.RUnlock()
	return c.replica.Visible(p)
}
