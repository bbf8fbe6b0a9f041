// Package raftwire is the wire format of Raft messages between servers.
//
// raftpb.Message is a proto2 message whose every scalar is a pointer, so
// protobuf allocates once per field. Nearly all messages are appends,
// heartbeats and their answers; here each of them is decoded with one
// allocation, plus two for the entries of an append. Messages that the compact
// form cannot express (snapshots, fields of a later raft version) are carried
// as protobuf inside it.
//
// The data of entries is beside a message, not in it: a sender refers to the
// log's own bytes, and a receiver retains only that data of the received batch.
//
// Invariants:
//
//  1. Next(Append(list, g, m)) yields g and a message that proto.Equal calls equal
//     to m, down to which fields are present.
//  2. Next never panics and never allocates much more than a constant factor of
//     any input.
//
// A batch of messages is a list of byte strings. Per message a head,
//
//	uvarint  group
//	uvarint  mask of the fields that are present; mask 0: protobuf follows
//	…        the fields in the order of the mask's bits
//
// and then, for each entry that has data, a string of that.
//
// The package imports nothing of stoa's internals.
package raftwire
