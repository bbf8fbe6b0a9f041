// Package store holds one partition's keys: their current values in memory, and
// their history back to the last compaction, partly in memory and partly in
// History, which internal/backend implements.
//
// A write comes in through Put or Delete, from the apply loop, and goes out
// twice: as the Change that is returned (to the watchers) and in the next Cut
// (to the file). Before the lock is released, Undo can roll writes back. A read
// comes in through Get, Range or Count under the read lock, on any goroutine; the values
// that it needs from the file are fetched by Resolve after the lock has been released.
// Watchers that lag read Changes.
//
// Invariants:
//
//  1. Revisions only increase. A write at or below an earlier one panics: it would break
//     searches in history and the equality of replicas (I6).
//  2. Returned data is never written to again: a KeyValue, a Change, a
//     Cut. Readers and the flusher use them without a lock.
//  3. Every revision at or above the compaction can be read: its value is
//     current, or in the change log, or (once its cut was released) in History.
//  4. A Cut holds all changes between two moments and is made in constant time;
//     the cuts of all partitions taken under all their locks are one state (I3).
//  5. Revisions that compaction has made dead are removed in order of revision and only
//     after their successors were written, so that a crash in between never brings
//     a deleted key back.
//  6. No step under the lock takes longer because of a compaction or a flush,
//     but for bounded pieces.
//  7. Keys that move to another store of the server take all of their history
//     along: the results of reads over all stores are the same before and after. The
//     time of a step depends on the keys in it, and Piece bounds these.
//
// The package depends on no watches, no leases (beyond the id in a KeyValue), no
// Raft, no file and no clock. Of stoa it imports only fault, kvwire and placement.
// DESIGN.md describes the implementation and rejected alternatives.
package store
