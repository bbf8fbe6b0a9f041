// Package session keeps the order that one session's client was promised: when a
// request may go on its way, and when its reply may leave.
//
// A [Session] is a state machine. Requests and completions go in (Take, Wrote,
// Reached); what is to be done comes out of Advance, as calls of its [Host], which is
// package session/host and in tests a model. See DESIGN.md for the rules and why they
// are enough.
//
// Invariants:
//
//  1. Requests take effect in the order of their numbers: writes that are under
//     way together go to one partition, each with the one before it as its
//     condition; before anything else goes on its way they have been answered.
//  2. Replies leave in the order of the requests, each once.
//  3. A strict or causal read sees all that the session has seen and written, and what
//     its watches begin behind. All reads of a run see one state.
//  4. A reply that reflects a state leaves after the ordered events of that state.
//  5. After [Session.Lost] nothing goes on its way and no reply leaves: what was
//     replied to is a prefix of the requests, what took effect is a prefix of the
//     writes.
//
// The package imports placement and the API, and nothing else of stoa. It knows no
// clock, no goroutine and no lock: one goroutine at a time drives a session.
package session
