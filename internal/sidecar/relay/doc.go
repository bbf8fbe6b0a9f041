// Package relay lets watches of many local clients follow few watches of a cluster. It is a state
// machine: it knows no connection, goroutine or clock.
//
// A Hub has a span for each range that is watched, with one watcher upstream, whose recent events
// it keeps. A Stream is a local client's; each of its watchers reads those events at its own pace,
// or, if they don't reach back far enough, catches up by a watcher of its own upstream:
//
//	Hub.Receive ──► span: recent ──► Stream.Next ──► the local client
//	                                     ▲
//	     a member ──► Watcher.Feed ──────┘ while it catches up
//
// Invariants, of every watcher:
//
//  1. It gets every event of its range from its start revision on, once, in order, and those of
//     one revision in one response (or its fragments).
//  2. Progress at a revision comes after all events at or below it, and before all above it.
//  3. A client that doesn't read costs no other client anything, and no memory but its own
//     requests'.
//  4. Answers to creations come in the order of the requests.
//
// Nothing here may be used by several goroutines at a time: the caller locks the hub, its streams
// and its watchers together.
package relay
