// Package etcdwal reads the log of one of etcd's data directories, to find out which member
// of which cluster it belongs to, where it ends, and whether an etcd server has run on it
// since `etcdutl snapshot restore` made it.
//
// It doesn't return entries: a log is used only if the state file beside it has all of them.
//
// The format (etcd's server/storage/wal): segments named SEQUENCE-INDEX.wal; in them frames
// of 8 bytes, little-endian, with the length of a record in the lower 56 bits and, if the
// highest bit is set, that of its padding in bits 56 to 58; then the record, a protobuf
// message of type, CRC-32 (Castagnoli, over the data of all records so far) and data. A zero
// length ends a segment. An entry replaces those with its index or a higher one.
//
// Of stoa's packages it imports protofield only.
package etcdwal
