// Package store holds one partition's keys: their current values in memory, and
// their history back to the last compaction, partly in memory and partly in
// History, which internal/backend implements.
//
// A write comes in through Put or Delete, from the apply loop, and goes out
// twice: as the Change that is returned (to the watchers) and in the next Cut
// (to the file). Before the lock is released, Undo can take writes back. A read
// comes in through Get, Range or Count under the read lock, on whatever goroutine;
// what it needs from the file is fetched by Resolve after the lock has been
// released. Watchers that are late read Changes.
//
// Invariants:
//
//  1. Revisions only go forward. A write at or below an earlier one panics: no
//     search in history, and no agreement of replicas (I6), would survive it.
//  2. What was handed out is never written to again: a KeyValue, a Change, a
//     Cut. Readers and the flusher use them without a lock.
//  3. Every revision at or above the compaction can be read: its value is
//     current, or in the change log, or (once its cut was released) in History.
//  4. A Cut holds all changes between two moments and is made in constant time;
//     the cuts of all partitions taken under all their locks are one state (I3).
//  5. What compaction has killed is removed in order of revision and at most
//     after its successor was written, so that a crash in between never brings
//     a deleted key back.
//  6. No step under the lock takes longer because of a compaction or a flush,
//     but for bounded pieces.
//  7. Keys that move to another store of the server take all of their history
//     along: what the stores answer together is the same before and after. A step of
//     a move takes as long as the keys in it need, and Piece bounds these.
//
// The package knows no watches, no leases (beyond the id in a KeyValue), no
// Raft, no file and no clock. Of stoa it imports only internal/fault and
// internal/kvwire.
// DESIGN.md says how it is done and what was rejected.
package store
