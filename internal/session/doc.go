// Package session implements the order of one session: it decides when a
// request may be issued, and when its reply may be sent.
//
// A [Session] is a state machine. Requests and completions go in (Take, Wrote,
// Reached); Advance makes the resulting calls of its [Host], which is package
// session/host and in tests a model. See DESIGN.md for the rules and why they
// suffice.
//
// Invariants:
//
//  1. Requests take effect in the order of their numbers: writes in flight
//     together go to one partition, each with the one before it as its
//     condition; they are answered before any other request is issued.
//  2. Replies are sent in the order of the requests, each once.
//  3. A strict or causal read sees all that the session has seen and written, and what
//     its watches begin behind. All reads of a run see one state.
//  4. A reply that reflects a state is sent after the ordered events of that
//     state.
//  5. After [Session.Lost] no request is issued and no reply sent: the answered
//     requests are a prefix of the requests, those that took effect are a
//     prefix of the writes.
//
// The package imports kvwire, placement and the API, and nothing else of stoa. It knows no
// clock, no goroutine and no lock: one goroutine at a time drives a session.
package session
