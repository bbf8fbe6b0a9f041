// Package client is the Go client of stoa: etcd's client, and sessions.
//
// A [Client] is a *clientv3.Client of go.etcd.io/etcd/client/v3 with what stoa has
// beside etcd's API. Through it each request is a gRPC call of its own, as with
// etcd. [Client.Session] opens a session: one stream that carries requests and
// answers in batches, costs a fraction of that per request, and promises more.
//
// # What a session promises
//
//  1. Requests take effect in the order in which they were sent, whichever keys
//     they touch, whether or not anybody waits for the answers.
//  2. A read reflects all that the session has sent before it (except at the level
//     [Fast]). The events of ordered watches come in the order of their revisions,
//     and lie in their [Feed] before the answer to any later read that reflects
//     them is there.
//  3. A write takes effect once, however often connections break, leaders change
//     and the client sends it again.
//  4. Of the writes without an answer, those that took effect are a prefix.
//  5. [Causal] reads, which any member answers by itself, see all that the session
//     has seen, and all that was handed over with a [Token].
//  6. A read shows nothing that the session sent behind it, nor does a watch lack it,
//     also if they had to be sent again: those that can't be answered any more in
//     their place fail with [ErrOvertaken]. Only asynchronous ones do; a synchronous
//     call is in no order with what others send while it waits, and is sent anew.
//
// A session is a lease, whose number is [Session.ID]. Keys that are put with
// [Ephemeral] go, all at one revision, when the session is closed or lost. It is
// lost when no member hears of it for its ttl: then every call fails with
// [ErrSessionExpired]. Nothing else makes a synchronous call fail that the server
// has not refused: while there is no connection, calls wait.
//
// # Waiting
//
// …Async methods send, and return a [Future]. They wait for nothing, but when
// Config.Pending requests are unanswered, for room. The synchronous methods send
// and wait. A context bounds waiting only: when it ends, the request is on its way
// nevertheless, keeps its place, and whether it takes effect is unknown to the
// caller.
//
// # Levels
//
// A read is strict, causal or fast; Config.Level and [WithLevel] say which a
// session's reads are, and [Session.At] reads at another:
//
//	s.At(client.Causal).Get(ctx, "/ready")
//
// # Code written for etcd
//
// [Session.KV], [Session.Watcher] and [Session.Lease] are etcd's interfaces over a
// session, and [Session.Etcd] is a *clientv3.Client made of them, for etcd's own
// packages concurrency, leasing, mirror and namespace among others. With
// concurrency.WithLease(session.ID()), locks and elections live as long as the
// session.
//
// # Where things are
//
// A request comes in at calls.go, reader.go or batch.go, gets its number and its
// encoding in session.go (backlog.go, encode.go), leaves in stream.go, and comes
// back there as an arrival (decode.go), which its future (answer.go) or its watch
// (watch.go) takes in. connect.go and roster.go find a member, vitals.go notices
// that one is lost. DESIGN.md says why it is so.
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
//  4. What was received is acknowledged only after it was matched; the servers may
//     forget the results up to there.
//  5. The memory of a message is used again: nothing that is handed to a caller
//     points into it.
//
// The package knows stoa's API and etcd's client libraries, and nothing of the
// server.
package client
