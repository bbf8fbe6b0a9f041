// Package keepalive lets keep-alives of leases of many local clients share few streams to a
// cluster. It is a state machine: it knows no connection, goroutine or clock.
//
// A Stream is a local client's. Each of its requests waits for a renewal of its lease, which it
// shares with those of others that came before the renewal was sent:
//
//	Stream.Ask ──► Hub: leases ──► Hub.Take ──► a member
//	Stream.Next ◄── requests ◄──── Hub.Renewed ◄──┘
//
// Invariants:
//
//  1. A request is answered by a renewal that was sent after it came: the time to live in the answer
//     begins to run no earlier than for a client that asks a member itself.
//  2. A renewal is sent only if a stream that has asked for it is open: no lease is kept alive for a
//     client that has gone.
//  3. The answers of a stream come in the order of its requests, one each.
//  4. At most one renewal of a lease is under way.
//  5. Programs have their turns, one lease each, however many they ask for: none waits for all those of another.
//
// Nothing here may be used by several goroutines at a time: the caller locks the hub and its streams
// together.
package keepalive
