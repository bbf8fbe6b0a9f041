// Package wal is the server's one write-ahead log, shared by all groups: what
// Sync has returned for is there after any crash.
//
// It knows only bytes and group numbers. One goroutine, the writer, appends
// what all groups have pending and syncs once for all of them; the records of
// a group come back in the order in which they were appended.
//
// Invariants:
//
//  1. A record that a successful Sync covered is replayed by the next Open,
//     unless Release was told that it isn't needed, or Open fails.
//  2. Nothing is replayed that was not appended, byte for byte, and nothing
//     behind a gap: what is replayed of a segment is a prefix of what was
//     appended to it.
//  3. Only what was never covered by a successful Sync is ever cut off, with
//     a line in the log that says where. Any other damage fails Open with
//     the file and the offset, as far as it can be told from a torn tail
//     (DESIGN.md, "The one case that can't be told").
//  4. After a failed write or sync the log is dead: every later call returns
//     that first error (I5, nothing is tried again as if it had worked).
//  5. A segment is begun only when all before it is durable, and it begins
//     with all state that stands outside the entries (Options.Head). So the
//     log can be shortened by whole segments from its old end.
//
// The package must not import Raft, commands, or anything of stoa but vfs.
// Records come in through Append (from the writer of internal/node), go to
// the segment files through vfs, and come back through Open's replay into
// internal/raftlog. The format and the argument for each operation are in
// DESIGN.md.
package wal
