// Package backend is the single bbolt file of a server, in etcd's own schema.
//
// State comes in as a Cut of all partitions through Flush, one durable
// transaction; it goes out through Load after a restart, through Get and Scan
// (store.History) to readers of old revisions, and as a Snapshot: the file
// itself, for a peer that lags, for etcdctl and etcdutl, for a move to etcd.
//
// Buckets of etcd's: key (revision → KeyValue; main as 8 bytes big-endian, '_',
// sub likewise, and 't' for a tombstone), meta (consistent_index and term of
// group 0, confState, storageVersion, scheduledCompactRev, finishedCompactRev),
// lease, alarm, members, auth, authUsers, authRoles; the others exist and are empty. Ours is
// stoa:
//
//	format              the level of the cluster (package version), 8 bytes big-endian
//	cluster, server     ids, 8 bytes
//	partitions          8 bytes
//	position/NNN        of partition NNN: index, term, revision; 8 bytes each
//	log                 a server's id, and a place that its log has reached: number of a
//	                    segment, offset; 8 bytes each
//	blob/NAME           a value of the core's
//	sums                checksums of the keys that exist (sums.go); from level 4 on
//
// Invariants:
//
//  1. A flush is in the file in full or not at all, all partitions at one cut:
//     no part of a rendezvous without the rest (I3).
//  2. A flush that returned nil survives a crash (I5). After an error nothing
//     is known about the file, and the server must stop.
//  3. etcd reads the file: `etcdutl snapshot status` and restore work on it,
//     and Hash and HashKV are what etcd computes for the same content.
//  4. HashKV depends on its two revisions and the log, not on how far the
//     physical part of a compaction has come, so servers can be compared (I6).
//  5. A file that is truncated or whose structure is damaged is refused with
//     an error that names it and the offset; it never crashes the process.
//     bbolt has no checksums on its pages; a bit that has changed in a key that exists, or
//     in its value, is found by the file's sums when it is loaded, and while the server runs by
//     [Backend.Compare]. History is compared between servers only, by HashKV.
//
// The schema is written on a small engine interface with two implementations:
// bbolt, and trees in memory for the simulation (NewMem), which hold the same
// bytes and give the same hashes.
//
// Of stoa's packages it imports only store, fault, kvwire, protofield and version.
package backend
