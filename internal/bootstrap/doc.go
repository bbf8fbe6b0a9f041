// Package bootstrap decides whether a server may take part in its cluster: vote,
// acknowledge, lead.
//
// A server whose data directory is empty is one of two things. Either it has
// never been part of its cluster: then it may take part, from an empty log. Or
// it has lost its data: then it must never vote again, because it has forgotten
// its votes and acknowledgements, on which the others rely. The server itself
// can't distinguish the two. Its peers can, and this package asks them.
//
// Each data directory gets a random data ID when it is first used, and every member keeps
// a record ([Record], a small file in the data directory) of the data IDs under which it
// has met the others. Servers show each other their data IDs when a server without data
// introduces itself ([Registry.Join] asks, [Registry.Introduce] answers) and at the
// handshake of every link ([Registry.Meet]). The rule by which a server is admitted, and
// the argument that it is safe, are in DESIGN.md.
//
// Invariants:
//
//  1. The data IDs that a member sends or receives are in its record, durably,
//     before they are used: before the answer is sent, before the link carries
//     a message, before Join returns.
//  2. A data ID that is in the record of a member is never replaced there by
//     another. A member that lost its data can only return under a new member
//     ID.
//  3. A server that has not been admitted has no Raft state and sends no Raft message.
//  4. The ID of a member that this one knows to have been removed is never admitted
//     again.
//  5. All admitted servers of a cluster have the same number of partitions.
//  6. A record that isn't what was written is refused with the file's name.
//
// The package knows neither Raft nor the network: the calls to peers are given to Join. Of
// stoa's packages it imports config, version and vfs, and the messages to peers.
// A server comes in through Open; package transport calls Introduce and Meet.
package bootstrap
