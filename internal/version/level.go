package version

import (
	"fmt"
	"slices"
)

// Level numbers the states of everything that members of one cluster, or successive
// releases on one data directory, must agree on: the log, the file, the protocol between
// servers, the meaning of extensions, the results of commands. A cluster has one level, which
// is part of its replicated state. It begins at [Oldest], rises when all members know a
// later one, and goes down only by a downgrade. What a level adds is used only by clusters
// that have reached it.
//
// The level of a cluster is also the format of its members' files: a release that doesn't
// know it can't read them.
type Level uint64

// The levels that this program knows: it writes data of every one, and can be a member of a
// cluster at any of them.
const (
	Oldest Level = 1
	Newest Level = 7
)

// levels are all that releases have had, from 1. A new one is appended with what it adds;
// none is ever changed.
var levels = [...]struct {
	since    string // the first release that knows it, major.minor
	language int    // of extensions that are registered
	adds     string
}{
	{"0.1", 2, "the formats of the first release"},
	{"0.2", 2, "log: entries of format 2, commands cluster-version and member-announce, members reset by --force-new-cluster, auth and quota, and users of commands; results: leases whose keys wake event handlers end in smaller steps, deletions that wake too many handlers are refused before a key is deleted, lower bounds of the limits of extensions; file: format 2, the members' releases, epochs, users, roles and quotas, owners of leases; peers: members below the cluster's level are refused, leases are granted with less than their time"},
	{"0.3", 2, "log: command place; results: a step of a move divides only the quotas anew of which it moves keys, leases whose keys wake event handlers end in smaller steps still; file: pins, and moves of slots, in the partition map"},
	{"0.4", 2, "log: command resize; file: checksums of the keys that exist, groups and their generation, another number of partitions; peers: groups have numbers of their own once their number has changed, confirmations, calls and snapshots name the generation"},
	{"0.5", 2, "log: the wish drain; results: when the number of partitions grows, keys stay where they are, and move beside other requests afterwards; those of partitions that go have left them before; file: keys on their way at the beginning of a generation of groups"},
	{"0.6", 2, "log: commands check and verdict; results: an alarm CORRUPT of one member stops no writes, that of the cluster does"},
	{"0.7", 2, "log: numbers of leases in checkpoints and revocations; results: steps of a move meet in the partitions that take part alone, and the others take a range of keys to lie where either of the two maps says, a write of a session is refused only in the partitions of its keys, a strict extension is named only to users who may write its keys, an event handler runs only for keys that its user may read, the lease to which a client has its acknowledgement attached is its user's own, that of a session is used by its user alone, a block handler's client gets a key at once that event handlers of the call create, extensions are asked about a range that is a single key as about the key, a handler writes keys that keep another user's lease, or one that is ending, a further step of a revocation, that of a lease that has run out, and a checkpoint concern no lease that has been granted since, a call that comes back to more partitions has no effect before; file: moves whose steps do so, in the partition map, numbers of leases"},
}

func (l Level) known() bool { return l >= 1 && int(l) <= len(levels) }

// String is the level as a version: that of the first release that knows it, as in "0.2.0".
func (l Level) String() string {
	if !l.known() {
		return fmt.Sprintf("level %d", uint64(l))
	}
	return levels[l-1].since + ".0"
}

// Language is the version of the language of extensions for which sources are registered in
// a cluster at this level.
func (l Level) Language() int { return levels[min(max(l, 1), Level(len(levels)))-1].language }

// LevelOf is the level of a cluster version without its patch level, as in "0.2"; not ok if
// there is none with this number.
func LevelOf(cluster string) (l Level, ok bool) {
	for i := range levels {
		if levels[i].since == cluster {
			return Level(i + 1), true
		}
	}
	return 0, false
}

// Known are the levels that a program knows.
type Known struct{ Oldest, Newest Level }

// This is what this program knows. First is what releases before 0.2 know, which don't say
// so.
var (
	This  = Known{Oldest, Newest}
	First = Known{1, 1}
)

func (k Known) has(l Level) bool { return k.Oldest <= l && l <= k.Newest }

// CheckMember returns the reason for which a program can't be a member of a cluster at a
// level.
func (k Known) CheckMember(cluster Level) error {
	switch {
	case k.Newest < cluster:
		return fmt.Errorf("it is too old: the cluster's version is %v, and it knows none above %v. Start it with stoa %v or later", cluster, k.Newest, cluster)
	case k.Oldest > cluster:
		return fmt.Errorf("it is too new: the cluster's version is %v, and it knows none below %v. Upgrade all members to stoa %v first", cluster, k.Oldest, k.Oldest)
	}
	return nil
}

// CheckData returns the reason for which this program can't read a file of a level.
func CheckData(file Level) error {
	switch {
	case file > Newest:
		return fmt.Errorf("it was written at the cluster version %v, and this is stoa %s, which reads up to %v: start the release that wrote it, or a later one", file, Stoa, Newest)
	case file < Oldest:
		return fmt.Errorf("it was written at the cluster version %v, and this is stoa %s, which reads from %v: upgrade with a release in between first", file, Stoa, Oldest)
	}
	return nil
}

// Lowest returns the lowest of the newest levels that members know: the level that their
// cluster can have. Not ok if one can't be a member at that level.
func Lowest(members []Known) (l Level, ok bool) {
	l = Newest
	for _, k := range members {
		l = min(l, k.Newest)
	}
	return l, l >= 1 && !slices.ContainsFunc(members, func(k Known) bool { return !k.has(l) })
}
