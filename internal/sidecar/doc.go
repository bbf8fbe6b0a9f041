// Package sidecar is the server of `stoa sidecar`: etcd's client API on a local port, and the
// cluster behind it.
//
// A request comes in at a gRPC server (services.go; its ports and pages are those of package front) and leaves through a connection to the
// members (upstream.go): as a call of its own, which nothing decodes (forward.go), or, if it
// touches single keys only (kv.go), in a batch over a session that all local clients share
// (lane.go, lanes.go). Watches follow few watches of the sidecar's (watches.go, question.go, and
// package relay). Reads of some prefixes are answered from memory, which a watch keeps as the cluster is (cached.go,
// fill.go, point.go, and package cache). With a namespace, messages are translated before all that (namespaced.go).
//
// Invariants:
//
//  1. An answer is one that a member gave: code, text, details, headers and bytes. The errors
//     that the sidecar adds say that it could not reach one.
//  2. A call with a token of its own is never carried out with the rights of the sidecar's user.
//  3. A write takes effect at most once: the sidecar repeats none that may have taken effect,
//     but for the session, which does it exactly once.
//  4. A request never waits for a slower one of another client without a bound: see lane.limit.
//
// DESIGN.md has the reasons. The package is a client: it must not import any package that is
// part of a server's state (node, replica, store, apply and those below).
package sidecar
