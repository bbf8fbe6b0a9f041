// Package vfs is the small piece of a file system that the write-ahead log
// stands on, so that a test can take the floor away.
//
// OS is the real one. Mem is a strict one in memory: it gives a program only
// what the durability contract of a file system promises, and takes
// everything else away at Crash.
//
// Invariants:
//
//  1. What a File's Sync covered survives Crash byte for byte, under whatever
//     names SyncDir covered. Nothing else is certain to survive.
//  2. A Rename is atomic: after a crash one name or the other is there, never
//     both and never neither.
//  3. A write past the durable content of a file never harms bytes that were
//     durable before it, though they may share a sector: rewriting a sector
//     with the same beginning leaves that beginning as it was, whether the
//     write arrives or not.
//
// The package imports nothing of stoa. Calls come in from internal/wal (and
// from tests and the simulation); they leave into the operating system or
// end in memory.
package vfs
