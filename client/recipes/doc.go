// Package recipes are coordination recipes for stoa, each operation of which is
// one call: instead of a loop of reads and conditional writes at the client, as
// over etcd, a program in the servers does it at once (the ideas of EZK:
// Distler et al., Extensible Distributed Coordination). The programs are those
// of package extensions.
//
//	cli, err := client.New(client.Config{            // or etcd's client, or a session
//		Endpoints: endpoints, ClientID: "worker-7",  // the client's name, in every call
//	})
//	err = recipes.Register(ctx, cli, "queue")        // once, at the start
//	q := recipes.NewQueue(cli, "")
//	task, err := q.Take(ctx, "worker-7", lease)      // waits its turn
//	…
//	err = task.Done(ctx)
//
// Recipes need [KV] and [Watcher] of a client, which etcd's client and others
// implement.
//
// Common to all of them:
//
//  1. An extension serves only clients that have registered or acknowledged it.
//     Calls of other clients act on the plain keys; where an answer shows that,
//     the error is [ErrUnhandled], and a call that waits waits for ever. So
//     call [Register] first, by the same client's name as everything after it.
//     The name is client.Config.ClientID, in calls, watches and sessions alike;
//     a client of etcd's package is given it by client.Identify. All clients
//     without one are one client, "anonymous".
//  2. Nothing that changes something is a read, because etcd's client repeats reads by
//     itself when a connection breaks. After an error that isn't the recipe's own
//     ([context.DeadlineExceeded], Unavailable) a call may or may not have happened.
//  3. Calls that wait may be repeated, by the client's watch or by the caller: the same id
//     has one place in a line, one hold, one candidacy. An id belongs to one participant
//     at a time and holds no slash.
//  4. A participant's holds end with its lease. 0 stands for none where that
//     makes sense; then they stay until they are released. A lease that holds up
//     to 150 things of one recipe ends at one revision; one that holds more ends
//     in several steps.
//  5. An error of the program in the server is a gRPC status FailedPrecondition (of a call
//     that waits, an error with the same text): stoa: extension "NAME": line L, column C:
//     reason. The program has then changed nothing.
//
// Each recipe has a root, below which its keys are; "" stands for that of the
// file which ships with stoa. With [RegisterAt] there may be several of each,
// in partitions of their own.
//
// The same recipes made in the traditional way, of reads, conditional writes, watches and
// retries, are go.etcd.io/etcd/client/v3/concurrency and, for comparison, test/recipes.
package recipes
