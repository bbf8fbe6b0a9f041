// Package raftlog is one group's Raft log: raft.Storage in memory, and the
// translation to and from the shared write-ahead log.
//
// Memory holds every entry since the last compaction; the write-ahead log
// holds what a restart needs to build that again. Between the two lies the
// caller, who makes the returned records durable before Raft hears that its
// entries are.
//
// Invariants:
//
//  1. Entries are contiguous: from the base (a position whose entry itself is
//     gone) up to LastIndex, and immutable once appended; what a caller got
//     from Entries stays as it is whatever happens to the log.
//  2. Replaying the records that Append, ResetRecord and HardStateRecord gave
//     out, in order, from any segment on that Release left, followed by
//     Recover, gives a log that holds every durable entry that follows the
//     state machine's position.
//  3. The hard state's term never goes back, the commit index lies between
//     the state machine's position and the last index.
//  4. A gap is an error, never skipped.
//
// The package must not import the store, commands, network or files; it knows
// Raft's types and wal.Record. Entries come in from the group's loop (Append)
// and from wal.Open (Replay); they go out to Raft (Entries) and to the writer
// of the write-ahead log (the returned records).
package raftlog
