// Package wal is the server's one write-ahead log, shared by all groups: a
// record that a successful Sync covered survives any crash.
//
// It knows only bytes and group numbers. One goroutine, the writer, appends
// the pending records of all groups and syncs once for all of them; the
// records of a group come back in the order in which they were appended.
//
// Invariants:
//
//  1. A record that a successful Sync covered is replayed by the next Open,
//     unless Release was told that it isn't needed, or Open fails.
//  2. Nothing is replayed that was not appended, byte for byte, and nothing
//     after a gap: the records replayed from a segment are a prefix of those
//     appended to it.
//  3. Only records that no successful Sync covered are ever cut off, and the
//     server's log says where. Any other damage fails Open with the file and
//     the offset, as far as it can be told from a torn tail (DESIGN.md, "What
//     the log can't prove by itself").
//  4. After a failed write or sync the log has failed for good: every later
//     call returns that first error (I5, a failed sync is never retried).
//  5. A segment is begun only when everything before it is durable, and it
//     begins with all state that is kept outside the entries (Options.Head).
//     So the oldest segments can be deleted.
//
// The package must not import Raft, commands, or any package of stoa but vfs.
// Records come in through Append (from the writer of internal/node), go to
// the segment files through vfs, and come back through Open's replay into
// internal/raftlog. The format and the argument for each operation are in
// DESIGN.md.
package wal
