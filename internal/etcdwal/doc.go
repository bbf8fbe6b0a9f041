// Package etcdwal reads the log of a data directory that `etcdutl snapshot restore` has
// made, to find out which member of which cluster it was made for.
//
// It is no reader of etcd's logs in general: such a log is one short segment, with one
// configuration change for each member. Everything else is refused with [ErrUsed], since a
// server that has run may have entries in its log that its state hasn't.
//
// The format (etcd's server/storage/wal): frames of 8 bytes, little-endian, with the length
// of a record in the lower 56 bits and, if the highest bit is set, that of its padding in
// bits 56 to 58; then the record, a protobuf message of type, CRC-32 (Castagnoli, over the
// data of all records so far) and data. A zero length ends the segment.
//
// The package imports nothing of stoa's.
package etcdwal
