// Package replica is one server's replicated state machine: its partition
// groups, the sequencer that orders them, and the servers' messages about
// reads. It has no goroutines, clocks, files or sockets: package node drives it
// in production, the simulation drives it in tests, and both run the same code.
//
// # The path of a write
//
// [Replica.Submit] routes it: to this server's own group (propose.go) if it
// stamps, else to the server that does (forward.go), for whose answer [Calls]
// waits. The group's next [Replica.Work] batches all waiting writes into one
// log entry, stamped by the sequencer, and proposes it to Raft; ready.go hands
// Raft's messages to the [Network] and its appends to the [Disk]; committed
// entries are applied in apply.go, where a rendezvous waits for the other
// participants (meet.go), and the result goes to the write's Done.
//
// # The path of a strict read
//
// [Replica.ReadPoint] confirms that this server still leads every group
// (confirm.go), takes the committed watermark, and waits until the partitions
// asked for are closed through it (wait.go); on any other server it asks the
// leader for the point and waits for that to be applied here (followerread.go).
// The caller then reads the stores, at what is [Replica.Visible] under their locks.
//
// # Leadership
//
// gather.go brings the leaders of all groups together behind that of group 0; lead.go
// makes sure, before the first stamp of an epoch, that nothing of an earlier
// leader is pending: a barrier entry in every group, the rendezvous that only
// some of the logs have proposed to the others, and all of these applied.
//
// Invariants, beside those of package sequencer:
//
//  1. A group's state is touched only by the one caller of Work for this group.
//     Inputs of other goroutines wait in its inbox.
//  2. For every stamp that a client can see, C is at or above it on the leader:
//     C moves when the commit index does, before anything is sent or applied.
//  3. The term of a group is published before a message that carries a vote in
//     it can leave, so that an acknowledged confirmation is a promise.
//  4. A write is sent or proposed again only if it is known not to be in a log.
//  5. Nothing that was handed to a Done or a read is undone: answers are given
//     after apply, and apply happens after the disk.
//  6. Each request is answered once, and within Config.RequestTicks; no callback
//     runs under a lock.
//
// DESIGN.md describes the callers of each method, the order of locks, and why
// no request is stranded.
package replica
