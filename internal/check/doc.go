// Package check decides whether the replicas of a cluster have the same state, and which of
// them don't. It is pure: no clock, no log, no network.
//
// A check is a command of all partitions. Each server that executes it computes a [Digest] of
// its state at that place of the logs, and tells the leader ([Report]). If a majority of the
// members that had a vote there agree, the leader puts a [Verdict] into the log. Each server
// judges itself by it ([Own.Judge]): one whose digest was another fences itself, one that was
// fenced and agrees serves again. If no majority can agree, or doesn't in time, that is an alarm
// for the whole cluster, and no server is taken for the right one.
//
// Invariants:
//
//  1. A verdict has the digest that a majority of the voters reported for that very place
//     ([Rounds]), computed by the same version of the algorithm.
//  2. A server follows a verdict only if the voters that agreed are a majority of those that it
//     has in its own list at that place: a leader whose list is damaged fences nobody.
//  3. A server without a digest of its own for that place and version isn't judged: it may have
//     been restarted, or taken in a snapshot, behind the place. The next check concerns it.
//  4. A place is executed with one state: of several checks in one entry the first counts.
//
// In: apply computes digests. Out: the node proposes verdicts, and fences itself. The package
// imports nothing of stoa.
package check
