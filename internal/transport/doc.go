// Package transport carries what the servers of one cluster say to each other.
//
// Each server dials every other and speaks on the link that it dialled, so a
// pair of servers has two links, each for one direction. A link is one gRPC
// stream of batches; a batch is all that was waiting when the link could send.
// Snapshots go over a connection of their own, so that they never stand in
// front of a heartbeat.
//
// Invariants:
//
//  1. What is sent to a peer arrives in the order in which it was sent, or not
//     at all. (Inside a batch the kinds are apart; order holds within a kind.)
//  2. Send never blocks. Memory per peer is bounded by Options.QueueBytes plus
//     one batch.
//  3. Whenever something that Send took was or may have been lost, the handler
//     learns of it by Unreachable; nothing is lost in silence.
//  4. Nobody is listened to who has not shown to be a known server of this
//     cluster, and no two processes are listened to under one id at a time.
//  5. A reader of an incoming snapshot ends with io.EOF only if every byte was
//     there and every checksum right.
//  6. Each peer has at most one call of Receive at a time, and none runs or
//     begins once Close has returned.
//  7. A link carries nothing before both sides have noted whose data directory the
//     other has (Options.Meet).
//
// A message goes out through Send (transport.go) into a queue (queue.go), from
// which the peer's goroutine (peer.go) writes to the link that it dialled
// (dial.go). It comes in through Link (accept.go), after the dialler's identity
// was checked (identity.go), to Handler.Receive. A server without data introduces itself
// (introduce.go), for package bootstrap.
//
// The package knows groups only as numbers and Raft messages only as bytes
// (package raftwire). It must not import anything else of stoa but api.
package transport
