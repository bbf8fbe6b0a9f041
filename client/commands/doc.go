// Package commands carries out commands that concern several clusters: each once in every
// cluster, in one order, whatever crashes. It is the queue and the executor of ZooFence
// (Halalai et al., SRDS 2014, Algorithm 2 and §IV-C).
//
// A queue is of a set of clusters, and lies in the first of them. A [Sender] appends the
// [Command]s of one client to it, in batches: entries of the queue, whose order is that of
// their revisions. For each cluster of the set, a [Carrier] goes through all entries and
// writes there what concerns the cluster, several entries in one transaction. Its progress
// is a [Mark], a key of that cluster, which each transaction compares and replaces. When all
// carriers have passed an entry, it is removed ([Finisher]), and the record [Done] says so to the
// clients.
//
// Invariants:
//
//  1. A batch is in the queue once or not at all, and a client's batches are in the order of
//     their numbers without a gap: its transaction compares the number of those before. An
//     answer says that it is in the queue.
//  2. While a cluster's mark is at a place, the cluster has had the commands of the queue
//     before that place, each once, in the order of the queue, and none behind it. A command
//     has effect in one transaction of each cluster.
//  3. An entry is removed only when every cluster has had all of its commands; the record that
//     says so only goes on, and names revisions at which the clusters have had them.
//  4. It doesn't matter how many carriers, senders of the same batch, or finishers there are, or
//     how late a transaction of one that has been given up takes effect: each compares what
//     those before it have left.
//
// The package is pure: clusters, time and identity are given to it, and its types are state
// machines that their callers drive. It must not import gRPC or an etcd client; package queue,
// below it, does the I/O. It shares the form of transactions and marks with package mirror.
package commands
