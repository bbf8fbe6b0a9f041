// Package salvage says what becomes of the logs of a member that is made a cluster of its own
// (--force-new-cluster), after the others have been lost. It is pure: logs in, entries out.
//
// The member has a prefix of each group's committed log, and in some groups perhaps entries
// behind it that were never committed. Where the one ends and the other begins is not known:
// commit indexes are not durable. So [Plan] keeps everything, except what is proven not to
// have been committed (stale.go) and would contradict the rest: a single group has no rest, and
// keeps all of its log. To each log it appends, as a leader does, the barrier of an epoch, then the
// rendezvous that this log lacks and other participants' have (complete.go), the steps that remove
// all other servers, and one rendezvous that resets the list of members. The caller commits all
// of it.
//
// The epoch is later than every one that a log shows. Without it, what is appended to a log that
// hasn't come to the latest of these would stand in an earlier one, with stamps above those of the
// latest: the next plan would take it for stale, and all that was written behind it.
//
// A log may show a change of the number of partitions that the member hasn't executed. Then the plan
// brings all groups to that point and no further, and the member plans again in the next
// generation (ending.go).
//
// What may be relied on:
//
//  1. Every entry that was ever committed and that one of the member's logs has is kept at its
//     place, with its stamp. A committed rendezvous takes effect in all of its partitions, if
//     the log of one of them has it, and is refused if it was refused in the cluster.
//  2. In the logs that come out, stamps increase along each log and none is given twice, each
//     rendezvous is in the logs of all its participants, and any two that share participants
//     are in one order. So everything can be applied without an election, which a server that
//     knows of a committed change of the configuration could not win.
//  3. Planning again, from the logs that came out or from some of them, is correct; once the
//     member is alone and everything is applied, it changes nothing.
//
// The package imports neither the store nor the write-ahead log.
package salvage
