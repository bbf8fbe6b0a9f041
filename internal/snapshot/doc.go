// Package snapshot makes the data directory of a new member out of a snapshot: the file
// that `stoactl snapshot save` or `etcdctl snapshot save` has written, from stoa or etcd
// ([Restore]), or a directory that `etcdutl snapshot restore` has made or a stopped etcd has
// left ([TakeOver]).
//
// A snapshot is the backend file, followed by its SHA-256. It isn't laid out by partition,
// so a member may have any number of them.
//
// Invariants:
//
//  1. Nothing is written before the file has been read in full and found sound: its
//     checksum, its structure, its keys, its extensions. What is copied is what was read.
//  2. A data directory has no member directory, or a complete one: it is made beside,
//     under the name restoring, and renamed. A server refuses a directory with the rest of
//     a restore that was interrupted ([Refuse]).
//  3. Members that are restored differently are of different clusters: the ID of the
//     cluster has the checksum of the state in it (package bootstrap).
//  4. Members that are restored alike have the same state at the same place in their logs,
//     raftlog.Bootstrap, where the logs of every new cluster begin.
//
// What is taken over and what is not is in DESIGN.md. Package backend knows the file's
// schema, package bootstrap the record of a member, package etcdwal etcd's log.
package snapshot
