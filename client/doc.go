// Package client is the Go client of stoa: etcd's client, and sessions.
//
//	c, err := client.New(client.Config{Endpoints: []string{"127.0.0.1:2379"}})
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	_, err = c.Put(ctx, "/service/db", "10.0.0.7")     // as with etcd's client
//
//	s, err := c.Session(ctx)
//	if err != nil {
//		return err
//	}
//	defer s.Close(ctx)
//	_, err = s.Put(ctx, "/service/web", "10.0.0.9", client.Ephemeral())
//
// A [Client] is a *clientv3.Client of go.etcd.io/etcd/client/v3 with stoa's
// additions to etcd's API. Through it each request is a gRPC call of its own.
// [Client.Session] opens a session: one stream that carries requests and
// answers in batches, costs a fraction of that per request, and guarantees
// more. Code that works with etcd needs no session; code that sends many
// requests, relies on their order or uses ephemeral keys does.
//
// # What a session guarantees
//
//  1. Requests take effect in the order in which they were sent, over all keys,
//     whether or not anything waits for the answers.
//  2. A read reflects all that the session has sent before it (except at the
//     level Fast). The events of ordered watches come in the order of their
//     revisions, and are in their Feed before the answer to any later read that
//     reflects them.
//  3. A write takes effect exactly once, even if connections break, leaders
//     change and the client sends it again.
//  4. Of the writes without an answer, those that took effect are a prefix.
//  5. Causal reads, which any member answers by itself, show all that the
//     session has seen, and everything up to the tokens given to it.
//  6. A read shows nothing that the session sent behind it, nor does a watch
//     lack it, also if they had to be sent again: those that can't be answered
//     any more in their place fail with ErrOvertaken. Only asynchronous ones
//     do; a synchronous call has no order relative to requests that others send
//     while it waits, and is sent again.
//
// A session is a lease, whose number is Session.ID. Keys that are put with
// [Ephemeral] are deleted, all at one revision, when the session is closed or
// lost.
//
// # Errors
//
// While there is no connection, calls of a session wait; they are sent again on the
// next one, to another member if need be. So an error is one of these:
//
//   - the server's refusal, the same error that etcd's client returns for it;
//   - [ErrSessionExpired], when no message has reached a member for the
//     session's TTL, and the other ends of a session; Session.Err is the same.
//     Unanswered requests may have taken effect or not, unless the error is
//     also [ErrNotSent];
//   - [ErrOvertaken], of asynchronous reads, see above;
//   - [ErrRequestTooLarge], and other errors in the request, which was not
//     sent;
//   - that of a context. A context bounds waiting only: when it ends, the
//     request is still in flight, keeps its place, and whether it takes effect
//     is unknown.
//
// …Async methods send, and return a [Future]. They wait only while
// Config.Pending requests are unanswered. The synchronous methods send and
// wait.
//
// # Levels
//
// A read is strict (the default: linearizable), causal or fast; see [Level].
// Config.Level and WithLevel choose a session's, and [Reader.At] reads at
// another:
//
//	s.At(client.Causal).Get(ctx, "/ready")
//
// # Defaults
//
// Every field of [Config] but Endpoints may be left out. Then a session has a
// TTL of 30 seconds, its reads are strict, it has up to 8,192 unanswered
// requests of up to 2 MiB, and it prefers the leader.
//
// # Code written for etcd
//
// [Reader.KV], [Reader.Watcher] and [Session.Lease] are etcd's interfaces over
// a session, and [Session.Etcd] is a *clientv3.Client made of them, for etcd's
// own packages concurrency, leasing, mirror and namespace among others. With
// concurrency.WithLease(session.ID()), locks and elections live as long as the
// session.
//
// # Further packages
//
// Package recipes has counters, queues, locks and elections of one call each; package
// compose makes one client of several clusters.
package client
