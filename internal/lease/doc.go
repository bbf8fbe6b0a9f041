// Package lease keeps the table of leases ([Table]) and, on the leader, the
// times at which they expire ([Expirer]).
//
// The two are apart because they differ in kind. The table is replicated
// state: it changes only by commands from the log and has durations in seconds, no
// clock. The expirer is the leader's soft state: it is built from the table
// when the server begins to lead, and discarded when it stops. It only
// proposes (a revocation, a checkpoint); the log decides. [Leader] has the log told
// what the expirer gives out, in its order and for the epoch in which it did so.
//
// Invariants:
//
//  1. The table is a function of the log alone.
//  2. No lease ends early: not before its TTL has passed since the grant or
//     the last acknowledged renewal, or the time that it was granted with if that was less,
//     across changes of leader. A new leader
//     has no record of the renewals, so it errs to the long side: it counts from its start
//     as leader, and from the remaining time of the last checkpoint, which is
//     rounded up.
//  3. A renewal is acknowledged only when no checkpoint from before it can still
//     shorten the lease under another leader. Hence [Renewal.Reset].
//  4. A lease whose end is too much work for one command is [Ending] from the
//     first step on: no renewal, checkpoint or change of leader prolongs it.
//  5. What a leader decides of a lease has its [Lease.Number], and concerns no other that has had its ID, or is to have it. What
//     a client asks for concerns whichever has the ID when it is executed.
//
// In: apply changes the table; the node renews, and has what is due expire.
// Out: lease ids to revoke and checkpoints, for the [Log]. The package imports fault
// and nothing else of stoa; it reads no clock.
package lease
