// Package raftwire is the form in which Raft messages travel between servers.
//
// raftpb.Message is a proto2 message whose every scalar is a pointer, so
// protobuf allocates once per field. Nearly all messages are appends,
// heartbeats and their answers; here each of them is decoded with one
// allocation, plus three for the entries of an append. What the compact form
// cannot express (snapshots, fields of a later raft version) is carried as
// protobuf inside it.
//
// Invariants:
//
//  1. Next(Append(b, g, m)) yields g and a message that proto.Equal calls equal
//     to m, down to which fields are present.
//  2. Next never panics and never allocates much more than a constant factor
//     of its input, whatever the input.
//
// A batch of messages is their concatenation. Per message:
//
//	uvarint  group
//	uvarint  length of what follows
//	uvarint  mask of the fields that are present; mask 0: protobuf follows
//	…        the fields in the order of the mask's bits
//
// The package imports nothing of stoa.
package raftwire
