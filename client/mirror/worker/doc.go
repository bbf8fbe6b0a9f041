// Package worker keeps mirrored prefixes up to date: [Run] follows the keys of one prefix of
// a home cluster into one target, until its context ends.
//
// Any number of processes may run a worker for the same prefix and target. A lease in the
// target elects one of them, the others wait; that is only to save work. What a worker may
// write is decided by the mark (package mirror): a former worker that still believes to be
// elected is refused by the target itself. One that home doesn't answer for the lease's time leaves its
// place to others, which may reach home.
//
// A worker goes on after everything that passes: an unreachable cluster, a lost lease,
// compaction at home, a target that lost its data or was restored, its own death (the next
// one begins where the mark stands). It ends with an error only for what an operator has to
// decide: a target that has keys but no mark, or the mark of another mirror, or that is the home itself.
//
// Values have stamps in the target (package cluster), by which readers get the keys as they
// are at home: revisions, version and lease.
package worker
