// Package osc checks recorded histories of clients of several clusters for ordered
// sequential consistency (Lev-Ari, Bortnikov, Keidar, Shraer: Composing Ordered
// Sequential Consistency Using Leading Updates), which is what one cluster promises
// whose updates are linearizable and whose reads may be stale, and what a composition
// of clusters has to keep promising.
//
// # What is checked
//
// A history is consistent if all its operations, over all clusters together, can be put
// into one sequence such that
//
//  1. it is legal: within each cluster updates come in the order of their revisions, and
//     a read shows, for each of its keys, the last update before it;
//  2. each client's operations stand in the order in which the client sent
//     them, over all clusters;
//  3. what was answered before an update was sent stands before that update. So updates
//     are linearizable, over all clusters; reads may be as stale as they like.
//
// # How
//
// Keys are compared by the revision of the update that a read found (its mod revision),
// and each update's revision is known: it was in the answer, or Resolve has found it in
// the cluster's history. So the order of each key's versions is no guess, and the check
// needs no search. The operations are the nodes of a graph with the edges
//
//	order      update → next update of its cluster, by revision
//	program    operation → next operation of its client
//	real time  operation → update that was sent after its answer
//	from       update → read that shows it
//	before     read → next update of a key, after the version that it shows
//
// The history is consistent if and only if every version that was read exists and the
// graph has no cycle.
//
// Only if: take a sequence that satisfies 1 to 3 and an edge a → b. For "order" and
// "from" a stands before b by 1; for "program" by 2; for "real time" by 3. For "before":
// were the update b before the read a, then a would show b or a still later version of
// the key, by 1, and not an earlier one. So the sequence orders the graph topologically,
// and a graph that can be ordered has no cycle.
//
// If: a graph without a cycle can be ordered topologically. That sequence satisfies 2
// and 3, as the edges demand it, and the first half of 1 for the same reason. Let a read
// show version v of a key. The update that wrote v is before the read ("from"), the next
// one of that key is behind it ("before"), all later ones are behind that ("order"). So
// v is the last before the read.
//
// # What was not answered
//
// An update without an answer may have happened. If the cluster's history has it, it is
// taken as an update that ended at the end of time, and that is followed by nothing of
// its client: the client didn't know that it was over. If the history doesn't have it,
// it never happened, and neither it nor any read without an answer is part of the
// history. (Both are what completing a history means in the definition.) Therefore
// histories are to be read, by Resolve, when nothing is under way any more.
//
// Deletions are not known here: a key that is not there has no revision, so which of its
// absences was read would be a guess.
//
// The package knows no client and no server. It must not import anything of stoa's.
package osc
