// Package queue does the I/O of queues of commands (package commands) with etcd's client: [Client]
// appends commands to a queue, [Run] carries them out, [Read] tells how far they are.
//
// Any number of processes may run Run for the same queue. A lease in the queue's cluster elects
// one of them, the others wait; that is only to save work. What an executor may write is decided by
// marks and records, in the clusters themselves. Run goes on after everything that passes:
// unreachable clusters, of which each holds up its own commands only, a lost lease, compaction, its
// own death.
package queue
