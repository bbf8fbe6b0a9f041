package apply

import (
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/version"
)

// Level is the version of the cluster.
func (m *Machine) Level() version.Level { return m.Membership().Level }

// language is the version of the language for which sources are registered.
func (m *Machine) language() int { return m.Level().Language() }

// levelOfSmallSteps is the level from which on a lease whose keys wake event handlers ends in
// smaller steps, and a deletion of too many such keys is refused before a key is deleted. Both
// change results, and so all members must agree on it.
const levelOfSmallSteps version.Level = 2

// levelOfLowerBounds is the level from which on the ceilings of the limits of extensions, and
// their default of event_steps, are lower.
const levelOfLowerBounds version.Level = 2

// levelOfSmallEnds is the level from which on those steps are small whatever the limits of
// extensions are.
const levelOfSmallEnds version.Level = 3

// levelOfSlots is the level from which on slots move and keys are pinned. A step of a transit
// divides only the quotas anew of which it moves keys.
const levelOfSlots version.Level = 3

// levelOfApart is the level from which on the steps of a transit meet in the partitions that take
// part alone; one that has begun before goes on with all.
const levelOfApart version.Level = 7

// levelOfRefusalsInPlace is the level from which on a write of a session is refused only in the partitions to
// which it belongs.
const levelOfRefusalsInPlace version.Level = 7

// levelOfHiddenExtensions is the level from which on a strict extension is named only to users who may write its keys.
const levelOfHiddenExtensions version.Level = 7

// levelOfReadableEvents is the level from which on an event handler runs only for keys that its user may read now.
const levelOfReadableEvents version.Level = 7

// levelOfOwnLeases is the level from which on an acknowledgement is attached to its client's lease only if its user was
// granted that.
const levelOfOwnLeases version.Level = 7

// levelOfOwnSessions is the level from which on the lease of a session is used by the user who opened it alone, and the role
// root.
const levelOfOwnSessions version.Level = 7

// levelOfSettledBlocks is the level from which on a block handler's client is answered with the awaited key as event handlers
// have left it.
const levelOfSettledBlocks version.Level = 7

// levelOfPoints is the level from which on extensions are asked about [key, key+"\x00") as about the key.
const levelOfPoints version.Level = 7

// levelOfKeptLeases is the level from which on a handler writes a key that keeps its lease, be it another user's or ending.
const levelOfKeptLeases version.Level = 7

// levelOfMeantLeases is the level from which on leases have numbers, and a further step of a revocation, that of a lease that has run
// out, and a checkpoint concern no lease that has been granted since.
const levelOfMeantLeases version.Level = 7

// levelOfEffectlessMoves is the level from which on a call that is to come back to other partitions, as a quota demands, doesn't end the
// count of the failures of its extension.
const levelOfEffectlessMoves version.Level = 7

// extensionBounds are the bounds of the limits of extensions.
func (m *Machine) extensionBounds() extension.Bounds {
	if m.Level() < levelOfLowerBounds {
		return extension.First
	}
	return extension.Current
}

// clusterVersion changes the version of the cluster.
func (x *execution) clusterVersion(body []byte) Result {
	c, err := membership.DecodeVersion(body)
	if err != nil {
		return x.failed(unreadable(command.ClusterVersion, body))
	}
	if c.Op == membership.Downgrade && !x.m.mayLeave(c.To) {
		return x.failed(fault.BadDowngradeTarget)
	}
	before := x.m.Level()
	r := x.members(command.ClusterVersion, func(l *membership.List) (*membership.List, error) { return l.NextVersion(c) })
	x.renew = r.Err == nil // the bounds of the limits may be others
	x.m.together()
	if r.Err == nil && min(before, x.m.Level()) < levelOfMeantLeases {
		x.m.Leases.Unnumber() // of some, as those of a backup, a release that doesn't know them keeps them, or not
	}
	return r
}

// MayDowngrade reports whether the cluster has nothing that a level doesn't know, and no member that differs. A server asks
// this before it proposes a downgrade.
func (m *Machine) MayDowngrade(to version.Level) bool { return m.mayLeave(to) && m.mayLeaveChecks(to) }

// mayLeave is what the command asks again: releases of level 6 don't ask about members that differ, and all have to
// give the same result.
func (m *Machine) mayLeave(to version.Level) bool {
	return m.mayLeaveUsers(to) && m.mayLeavePins(to) && m.mayLeaveGroups(to)
}

// mayLeaveUsers reports whether the cluster could go down to a level as far as users and
// roles go: a release that knows of none would open everything to everybody.
func (m *Machine) mayLeaveUsers(to version.Level) bool {
	return to >= levelOfUsers || m.Auth().Empty()
}

// memberAnnounce is memberPublish with the member's release.
func (x *execution) memberAnnounce(body []byte) Result {
	a, err := membership.DecodeAnnouncement(body)
	if err != nil {
		return x.failed(unreadable(command.MemberAnnounce, body))
	}
	return x.members(command.MemberAnnounce, func(l *membership.List) (*membership.List, error) { return l.Announce(a) })
}
