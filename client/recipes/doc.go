// Package recipes are coordination recipes for stoa, each operation of which is one
// call: what a recipe over etcd does with a loop of reads and conditional writes at the
// client, a program in the servers does at once (the ideas of EZK: Distler et al.,
// Extensible Distributed Coordination). The programs are those of package extensions.
//
//	cli, err := client.New(client.Config{            // or etcd's client, or a session
//		Endpoints: endpoints, ClientID: "worker-7",  // who this is, in every call
//	})
//	err = recipes.Register(ctx, cli, "queue")        // once, at the start
//	q := recipes.NewQueue(cli, "")
//	task, err := q.Take(ctx, "worker-7", lease)      // waits its turn
//	…
//	err = task.Done(ctx)
//
// What a recipe needs of a client is in [KV] and [Watcher], which etcd's client is, and
// anything else that looks like it.
//
// What holds for all of them:
//
//  1. An extension serves only clients that have registered or acknowledged it. The calls
//     of others mean the plain keys; where an answer shows that, the error is
//     [ErrUnhandled], and a call that waits waits for ever. So call [Register] first, by
//     the same client's name as everything after it. The name is client.Config.ClientID,
//     in calls, watches and sessions alike; a client of etcd's package is given it by
//     client.Identify. All clients without one are one client, "anonymous".
//  2. Nothing that changes something is a read, because etcd's client repeats reads by
//     itself when a connection breaks. After an error that isn't the recipe's own
//     ([context.DeadlineExceeded], Unavailable) a call may or may not have happened.
//  3. Calls that wait may be repeated, by the client's watch or by the caller: the same id
//     has one place in a line, one hold, one candidacy. An id belongs to one participant
//     at a time and holds no slash.
//  4. A lease is the participant's life: what it holds ends with the lease. 0 stands for
//     none where that makes sense; then what it holds stays until it is given back. What
//     happens at the end of one lease is a single request to the servers, and one request
//     may lead to no more than 2,000,000 steps of event handlers (event_steps in
//     /em/.limits): enough for some thousand things of one recipe.
//  5. An error of the program in the server is a gRPC status FailedPrecondition (of a call
//     that waits, an error with the same text): stoa: extension "NAME": line L, column C:
//     reason. The program has then changed nothing.
//
// Each recipe has a root, where its keys lie; "" stands for that of the file which ships
// with stoa. With [RegisterAt] there may be several of each, in partitions of their own.
//
// The same recipes made in the traditional way, of reads, conditional writes, watches and
// retries, are go.etcd.io/etcd/client/v3/concurrency and, for comparison, test/recipes.
package recipes
