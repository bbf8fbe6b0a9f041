// Package compose makes one client of several clusters, of stoa or of etcd:
// each keeps its own keys, and the client keeps one order over all of them. It
// is the modular composition of Lev-Ari, Bortnikov, Keidar and Shraer (ZooNet),
// with additions to the paper: one session over all clusters, and watches
// merged into one order.
//
//	c, err := compose.New(compose.Config{
//		Clusters: map[string]compose.Cluster{
//			"eu": {Endpoints: eu, Near: []string{here}},
//			"us": {Endpoints: us, Near: []string{usMemberNearHere}},
//		},
//		Routes: []compose.Route{{Prefix: "/eu/", Cluster: "eu"}, {Prefix: "/us/", Cluster: "us"}},
//	})
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	_, err = c.Put(ctx, "/eu/db", "10.0.1.7")
//	_, err = c.Get(ctx, "/us/db")                // another cluster: synced
//	_, err = c.Get(ctx, "/us/lb")                // the same: local
//
// A [Client] is etcd's KV, Watcher and Lease, with asynchronous methods beside them. The
// longest prefix of a key among [Config].Routes chooses its cluster.
//
// # What a composition guarantees
//
//  1. Updates are linearizable. All requests of all clients together, over all
//     clusters, are as if they had been carried out one after the other, in an
//     order that keeps that of each client (ordered sequential consistency). It
//     holds among clients that all use this package, or that use one cluster
//     each.
//  2. Reads are local: the near member answers. Only the first read after a
//     change of cluster is a synced one, and those that replace a lost sync
//     (Stats counts them). Requests within one cluster cost no more than with a
//     client of that cluster.
//  3. Asynchronous requests take effect in the order in which they were sent,
//     over all clusters. Those to another cluster are held back until the ones
//     before are answered. A read that lost its place, because its connection
//     broke and updates sent behind it have taken effect, fails with
//     [client.ErrOvertaken].
//  4. Reads of a cluster never go back to an older state than the client has
//     seen of it, also when another member answers.
//  5. Requests to a cluster that is cut off fail, within Config.Timeout, or
//     almost at once if it refuses connections, with a *[ClusterError] that
//     names it. Requests to it that were sent before that was known fail too,
//     unsent, with [ErrBehind]: of an asynchronous sequence, a prefix takes
//     effect in each cluster. Requests to other clusters that wait behind them
//     are sent.
//
// # Errors
//
// A request that no cluster can serve fails with [ErrNoRoute], [ErrSpans] or
// [ErrNotOverSpan]; a refusal by a cluster is the error that etcd's client
// returns for it. An unanswered request fails with a *[ClusterError], which
// names the cluster and unwraps to the cause: [ErrSilent], [ErrBehind],
// [client.ErrRefused], [client.ErrOvertaken] or a context's error among them.
//
// ClusterError.Unknown leaves open whether the update takes effect. In the
// order it counts as completed. On a stoa cluster it is decided before the next
// request there is carried out, since the session that carried it is ended
// first; on an etcd cluster it may still take effect later, and is then, for
// the order, another client's update.
//
// # Defaults
//
// Config needs clusters and routes. Requests to a silent cluster fail after 5
// s, one attempt to reach a member takes 2 s at most, 8,192 asynchronous
// requests may be held back, and a Session has a TTL of 30 s.
//
// # One order, many goroutines
//
// A [Client] is one logical client. Goroutines that use it together have one
// order, and wait for each other whenever they use different clusters.
// Goroutines that need no common order take a [Client.Fork] each: connections
// are shared, orders aren't.
//
// Contexts bound waiting. A call whose context ends keeps its place, or, if its
// call to an etcd cluster was in progress, is cancelled.
//
// # Sessions and leases
//
// A lease of a composition has the same number in all clusters.
// [Client.Session] keeps one alive; its loss in one cluster ends it in all. Its
// keys are not deleted everywhere at once: see [Session].
//
// # Mirrors
//
// A [Route] can name mirrors: clusters that have a copy of its keys. Updates go to the
// route's cluster, the keys' home. A client whose [Config].Local has a mirror reads and
// watches the keys there, with the same guarantees: such a read is a local read of home,
// and shows what home had at the revision in its header, with home's revisions in its keys.
// What the mirror can't answer, or not yet, is read at home (Stats.Mirrored counts what it
// has). [Client.Mirror] runs the workers that keep mirrors up to date.
//
// Keys of a mirrored route have no lease in the mirror; they are deleted there when home
// deletes them. Keys that begin with /stoa/ are not mirrored. Nothing else may write to the
// prefix in a mirror's cluster, and clients without a composition can't read it there:
// values have stamps behind them.
//
// # Transactions
//
// Keys of routes with [Route].Transactions can be compared and written in one transaction,
// though they are in several clusters ([Client.Txn], [Client.STM]). It is atomic whatever fails,
// and strictly serializable together with all updates of such keys by clients of such routes. It
// has a place in the client's order, as an update. Reads and updates of a locked key wait
// for the transaction that has it, or complete it. Package internal/commit is the protocol.
//
// # Commands over several clusters
//
// [Client.Commands] opens a queue of commands: puts and deletions of keys in several clusters. Each
// command is carried out once in every cluster, in the queue's order, also if its client dies
// after it was told that the command is taken. A command isn't visible in all clusters at one
// moment. [Client.CarryOut] runs the executor, in one process or several.
//
// # Watches
//
// [Client.Watch] is etcd's Watch in one cluster. A [Feed] merges watches of
// several into an order that respects the client's own requests. Taking an
// event counts as having seen the state that it shows: later reads of other
// clusters reflect the client's earlier requests.
package compose
