// Package host carries out the requests of sessions: it plans requests by where
// their keys are, sends writes into the log, waits for what reads need, opens
// watches, and hands replies and events to the stream. The order in which it
// does so is package session's, whose [session.Host] it is.
//
// It is one host for two worlds. What surrounds it is a [Server]: package node, with
// goroutines, timers and a client that can be slow; and the simulation, where all of
// these are events of one loop. So what the simulation judges is what servers run.
//
// # From a message to its replies
//
// All inputs go through the session's inbox (session.go): requests (Take),
// outcomes of writes, ends of waits, notifications of watches. If no goroutine
// drives the session then, it is driven: by Take itself, and otherwise by what
// Server.Go calls. A turn (driver.go) empties the inbox and lets the order
// advance: Plan (plan.go), Write (write.go), Await and Read (read.go),
// Delivered (watch.go), Reply.
//
// Invariants:
//
//  1. One goroutine at a time drives a session, and only that one touches its driver.
//     DESIGN.md says who may call what, and under which locks.
//  2. Nothing that a session waits for blocks its driver, save Sink.Flush, for as long
//     as its own client doesn't read, and Server.State, while a snapshot is installed.
//  3. A read is answered by the state, the placement and the extensions that it was
//     planned by; if one has changed, it is planned anew.
//  4. The writes of a batch were planned by the same three; when one of them
//     has to be routed again, the others are examined with it, after all are
//     done.
//
// The package knows no goroutine, timer, clock, file or network but through Server. It
// must not import node, rpc, transport, backend or the log.
package host
