// Package mirror copies the keys of one cluster into another and keeps the copy up to
// date, exactly: the target goes through states that the source has been in, in the same
// order, whatever crashes and however many executors run.
//
// An [Executor] first copies: it reads both sides in key order and writes the difference.
// Then it follows the source's changes, and writes those of whole revisions in one
// transaction of the target. Its progress is a [Mark], one key of the target, which each of
// its transactions compares and those that complete a revision replace. So nothing is kept
// outside of the target, and an executor can be killed and replaced at any point.
//
// Invariants:
//
//  1. While the mark is at revision r ([At]), the target's keys are the source's at r. In
//     any other phase they are not to be read.
//  2. A transaction takes effect only if the mark is the one that its executor wrote last, in
//     its revision and its value. An executor takes over by writing the mark; the one before
//     fails with [ErrTakenOver] at its next write, and none of its requests that are still on
//     their way take effect.
//  3. A lost answer is resolved by reading the mark: each mark that an executor writes is
//     different from all others.
//  4. Keys have no lease in the target: the source decides when they end, and their deletion
//     is mirrored.
//
// A revision with more keys than a transaction may have is written in several, under a mark
// that says so ([Partial]); after a crash it is written again from its first key. If the
// source has compacted changes that weren't mirrored yet, or was restored to an earlier
// state, the executor copies again. A copy doesn't need any revision of the source to stay
// readable, however often the source is compacted.
//
// The package is pure: clusters, time and identity are given to it. It must not import
// gRPC or an etcd client; package cluster, below it, implements [Source] and [Target] with
// one. Package migrate moves a whole cluster with it; package worker keeps mirrors of
// prefixes, which clients of a composition read.
package mirror
