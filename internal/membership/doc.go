// Package membership holds the members of a cluster and the Raft configurations of its
// groups, and says how the second follow from the first. It is pure: the apply loop
// changes the list, the leader drives the groups, and both ask this package.
//
// # How a change takes effect
//
// A rendezvous of all groups decides ([List.Next]), and the groups follow one by one. A
// rendezvous can't itself be the change of the configurations: Raft doesn't let a server
// campaign that knows of a committed change which it hasn't applied, and applying one that
// waits for another group may need a campaign there.
//
// The list and its generation are one for all groups. Each group's [Config] says which
// generation it has reached. [Step] compares a list with a group's configuration; the
// leader proposes what it returns, as an ordinary change of one server, until all groups
// have reached the list's generation ([Settled]). It compares states, and so needs no
// memory that a successor would lack.
//
// Invariants:
//
//	M1. The voters of group 0 are voters of every group: whoever may lead group 0 may lead
//	    all. New voters join group 0 last, and removed ones leave it first.
//	M2. Nothing in front of a change of a configuration waits for another group: while
//	    groups follow, there are no rendezvous. (Package replica sees to it.)
//	M3. A group's configuration is a function of its applied index. It stands in the same
//	    cut as the index does.
//
// # The cluster's version
//
// The list has the version of the cluster, too (version.go): what all members can read and
// do. The leader proposes a later one once it is connected to all members in the list and each
// says that it knows it; a program that doesn't know the version of the cluster is refused by
// the others from then on. So the version is a function of the log, and a member that was
// replaced by an earlier release in that very moment stops at the entry that raises it, which
// that release can't decode.
package membership
