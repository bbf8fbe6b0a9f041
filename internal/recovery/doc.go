// Package recovery restores a server's state from its backend file and its
// write-ahead log, and makes the two agree. It is the same for a start, for a
// snapshot that was installed, and in the simulation.
//
// The order: [Load] fills the stores and leases from the file; [NewLogs]
// makes the logs, which [Replay] fills while wal.Open reads; [Align]
// truncates or resets them to the stores' positions. After that a replica can
// be made of the parts. With --force-new-cluster, [Forced.Force] comes after Align, once, or again
// after a change of the number of partitions that was under way.
//
// When the number of partitions changes in a running process, [Resize] changes the file, and
// [InheritStores] and [InheritLogs] make of what is in memory what a restart would load.
//
// The package opens nothing itself: file, log and file system are its caller's.
package recovery
