// Package sequencer gives every write its place in the one revision order that
// all partitions share (invariant I1), and says how far that order is closed.
//
// A server stamps only while it leads every group and nothing of an earlier
// leader is unfinished in any log; [Sequencer.Open] and [Sequencer.Close]
// bracket such an epoch. Inside it, [Sequencer.Reserve] hands out stamps from
// one counter and appends to the proposal queues of the partitions concerned
// while it holds their lanes, so that stamps increase along every queue, and
// so along every log.
//
// What may be relied on:
//
//  1. Stamps are unique within an epoch and increase along each lane. An
//     epoch starts above every stamp in any log of its leader. A stamp that
//     was lost with its leader may be given out again; no client has seen it.
//  2. Committed never decreases within an epoch. Every stamp that a client
//     can have seen is at or below it.
//  3. Closed(p) = c means that everything of partition p stamped <= c is
//     applied here and nothing of p will ever be stamped <= c. It is built on
//     what is committed, never on the counter: a reserved stamp is lost with
//     its leader, and the next one may reuse it for another partition.
//
// The package is pure: no I/O, no time. It may be used by the goroutines of
// all groups and of all readers at once. It imports only placement's Set.
package sequencer
