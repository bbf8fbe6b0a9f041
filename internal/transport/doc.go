// Package transport carries the messages between the servers of one cluster.
//
// Each server dials every other and sends on the link that it dialled, so a
// pair of servers has two links, each for one direction. A link is one gRPC
// stream of batches; a batch is all that was waiting when the link could send.
// Snapshots go over a connection of their own, so that they never delay a
// heartbeat.
//
// Invariants:
//
//  1. Messages to a peer arrive in the order in which they were sent, or not at
//     all. (Inside a batch the kinds are apart; order holds within a kind.)
//  2. Send never blocks. Memory per peer is bounded by Options.QueueBytes plus
//     one batch.
//  3. Whenever a message that Send accepted was or may have been lost, the
//     handler is told by Unreachable.
//  4. Messages are accepted only from identified servers of this cluster, and
//     from one process per id at a time. A server that isn't a peer yet becomes
//     one when it dials; one that was removed from the cluster is refused.
//  5. A reader of an incoming snapshot ends with io.EOF only if every byte was
//     there and every checksum right.
//  6. Each peer has at most one call of Receive at a time, and none runs or
//     begins once Close has returned.
//  7. A link carries no message before both sides have recorded the other's
//     data directory (Options.Meet).
//
// A message goes out through Send (transport.go) into a queue (queue.go), from
// which the peer's goroutine (peer.go) writes to the link that it dialled
// (dial.go). It comes in through Link (accept.go), after the dialler's identity
// was checked (identity.go), to Handler.Receive. A server without data introduces itself
// (introduce.go), for package bootstrap.
//
// The package knows groups only as numbers and Raft messages only as bytes
// (package raftwire). It must not import anything else of stoa but api and version.
package transport
