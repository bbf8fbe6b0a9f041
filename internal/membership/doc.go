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
//	M2. Nothing in front of a change of a configuration waits for another group on the server
//	    that proposes it: while groups follow, there are no rendezvous. (Package replica sees to it.)
//	M3. A group's configuration is a function of its applied index. It stands in the same
//	    cut as the index does.
//
// # Seals
//
// A change is answered, and a server that leaves is let go, when no majority of the new voters can come to
// need more than itself. That the leader knows the step to be committed isn't enough. A server that loses its
// power forgets commit indexes, and campaigns in the configuration before the last step in its log:
//
//   - Of four that become three, the leader is lost for good, and the two others lose their power
//     before they have heard of the commit. They need three of four votes, and are two.
//   - Of two that become three, the leader is lost for good, and the other one of the two loses its
//     power. It needs two of two votes; the third, which would vote, isn't asked.
//
// So a group whose voters were an even number makes one step more, its seal, which changes nothing; the
// change is over when all groups have applied theirs ([Sealed]). A leader proposes a step only after it
// has applied the one before. So whoever has the seal in its log knows that the change in front of it is
// committed; and as a majority of the present voters has it, so has, of any majority that comes back, the one
// with the longest log, which wins an election with their votes. Until then a server that was removed
// votes and campaigns ([Config.Needs]): the longest log may be its own.
//
// From an odd number, 2m+1, no seal is needed. Of the m+1 that are a majority of the 2m after a removal, all are
// among the voters before, and of the m+2 that are one of 2m+2, m+1 are at least: a majority of those before in both
// cases. So in whichever of the two configurations they campaign, they suffice, if the one with the longest log
// campaigns: a newcomer that doesn't know yet that it has a vote hears of it from who asks for its own
// (package replica, heard.go). (One member that becomes two could not commit a seal before the second has started, and
// the answer, which names the new member's ID, would wait for that.)
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
