package replica

import "github.com/stoa-kv/stoa/internal/membership"

// Steady reports whether this server stamps, the groups have the members of the list, and no
// follower catches up by a snapshot. Otherwise it isn't the moment for more work that can wait.
func (r *Replica) Steady() bool {
	if !r.seq.IsOpen() || !membership.Sealed(r.cfg.Machine.Membership(), r.cfg.Machine.Configurations()) {
		return false
	}
	for p := range r.groups {
		if r.Needed(p) != 0 {
			return false
		}
	}
	return true
}
