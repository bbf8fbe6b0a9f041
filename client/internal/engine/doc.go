// Package engine implements sessions: it numbers requests, keeps the unanswered
// ones, sends them over a stream to one of the members, again when that breaks,
// and delivers replies and events in the order of the session. Package client
// is its public surface, and documents its guarantees; package compose builds
// on it as well. ../../DESIGN.md explains the design.
//
// A request comes in at calls.go, reader.go, batch.go or etcd.go, gets its
// number and its encoding in session.go (backlog.go, encode.go), leaves in
// stream.go, and comes back there as an arrival (decode.go), which its future
// (answer.go) or its watch (watch.go) receives. connect.go and roster.go find a
// member, vitals.go notices that one is lost.
//
// Invariants:
//
//  1. Numbers are given, and requests encoded, under one lock: the order in the
//     backlog is the order of the session.
//  2. A request stays in the backlog until its reply was matched. A new stream
//     carries what is there, from the first, and nothing before it was opened with
//     the first one's number.
//  3. All replies and events of a session pass through one goroutine, in the order
//     in which they came; it never waits for a caller.
//  4. Replies are acknowledged only after they were matched; the servers may
//     drop the results up to there.
//  5. The memory of a message is reused: nothing that is handed to a caller
//     points into it.
//
// The package knows stoa's API and etcd's client libraries, and nothing of the
// server.
package engine
