// Package vfs is the small piece of a file system that the write-ahead log
// uses, so that tests can inject errors and crashes.
//
// OS is the real one. Mem is a strict one in memory: it guarantees only the
// durability that a file system promises, and Crash may discard everything
// else.
//
// Invariants:
//
//  1. What a File's Sync covered survives Crash byte for byte, under the names
//     that SyncDir covered, and so does a directory that MkdirAll has made.
//     Nothing else is guaranteed to survive.
//  2. A Rename is atomic: after a crash one name or the other is there, never
//     both and never neither.
//  3. A write past the durable content of a file never harms bytes that were
//     durable before it, though they may share a sector: rewriting a sector
//     with the same beginning leaves that beginning as it was, whether the
//     write arrives or not.
//
// The package imports nothing of stoa. It is called by internal/wal, tests
// and the simulation.
package vfs
