// Package apply executes the log's entries, and evaluates reads.
//
// A [Machine] has the stores of all partitions and the state that is not partitioned:
// leases, alarms, members. A local entry is executed by its partition's
// loop under that store's lock; a rendezvous by the loop that arrives last,
// under the locks of all participants. Reads run on their own goroutines under
// read locks, through the same evaluator as reads inside a transaction.
//
// Invariants:
//
//  1. (I6) The state after an entry is a function of the state before it and of
//     the entry's bytes. No code here reads the time, draws a random number, or depends
//     on map order or on whether a request waits for the answer: without a waiter the
//     answer is not built, and the state is the same.
//
//  2. (I3) A command takes effect at one revision, whole or not at all: every
//     condition that can fail is checked before the first write, and readers of any of its
//     partitions are locked out until it is done. The one exception is work of its event
//     handlers beyond the limit of one command: then the command is rolled back
//     (follow.go), before the sink gets its changes.
//
//  3. (I1) A command's revision is its stamp, or one more than the last revision
//     of its partitions where it has none (P = 1). Without stamps a command that
//     writes nothing takes no revision; a stamp is used up whether or not it was
//     needed, for it has been answered with.
//
//  4. No content of a log entry makes it panic: a command that can't be decoded
//     or executed is answered with an error, the same on all replicas.
//
//  5. System state (leases, alarms, members, compaction) changes only at a rendezvous,
//     which must be one of all partitions. So does the map of placement, but for the cursor of a
//     transit that is apart: it moves at rendezvous of those that take part, and no result of
//     commands of others depends on it (place.go).
//
//  6. A write of a session takes effect at most once, and after the write that it
//     names as its predecessor; its copies are answered alike as long as the client
//     hasn't acknowledged the answer. The tables needed for that are state of the
//     partitions that the write touches: it is cut, loaded and compared with the
//     keys ([Machine.CutSessions], [Machine.LoadSessions], [Machine.SessionsDigest]).
//     All of it together is bounded, by the same rule everywhere (sessions.go).
//
//  7. (I6) A condition of this server alone never decides the outcome of a command. Only
//     the history is read from the disk, before the command's first write; if that fails,
//     or the log contradicts the state, the server ends ([Config.Fatal]) with the stores
//     locked, so that nothing of the command is seen or stored (fatal.go).
//
//  8. What is used of a quota grows only within its limit, whatever the partitions; DESIGN.md
//     says how this is decided in each of them.
//
// Entry in: [Machine.Local], [Machine.Rendezvous], and [Machine.Skip], [Machine.Open] and
// [Machine.Configure] for entries without commands, from the group loops; [Machine.Range],
// [Machine.Get] and [Machine.ReadTxn] from the node and from sessions. Out: results to the waiting
// requests, changes to the [Sink] (watches), system changes to the [Observer].
//
// The package must not import anything that has a clock, a network, a file or a
// random source, nor raft, wal or watch.
package apply
