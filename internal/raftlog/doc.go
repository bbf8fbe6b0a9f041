// Package raftlog is one group's Raft log: raft.Storage in memory, and the
// translation to and from the shared write-ahead log.
//
// Memory holds every entry since the last compaction; the write-ahead log
// holds the records from which a restart rebuilds it. The caller makes the
// returned records durable before it reports the entries to Raft as durable.
//
// Invariants:
//
//  1. Entries are contiguous: from the base (a position whose entry itself is
//     gone) up to LastIndex, and immutable once appended; a slice returned by
//     Entries is never modified by later changes of the log.
//  2. Replaying the records returned by Append, ResetRecord and
//     HardStateRecord, in order, from any segment retained by Release,
//     followed by Recover, gives a log that holds every durable entry that
//     follows the state machine's position.
//  3. The hard state's term never goes back, the commit index lies between
//     the state machine's position and the last index.
//  4. A gap is an error, never skipped.
//
// The package must not import the store, commands, network or files; it knows
// Raft's types and wal.Record. Entries come in from the group's loop (Append)
// and from wal.Open (Replay); they go out to Raft (Entries) and to the writer
// of the write-ahead log (the returned records).
package raftlog
