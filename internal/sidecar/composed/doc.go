// Package composed serves etcd's API over several clusters: `stoa sidecar --compose`. It is a thin
// layer over client/compose, which routes requests and keeps their order.
//
// A request comes in at the Server (server.go), goes to a method of its services (kv.go, lease.go,
// watch.go) and leaves through the compose.Client of the connection that it came over (clients.go).
// Beside that, a sidecar may run executors of mirrors and of commands (executors.go).
//
// Invariants:
//
//  1. All calls and watches of one connection are requests of one client of the composition, and no
//     others are. A client that connects again begins with a sync at each cluster, so that its
//     order goes on.
//  2. A read that isn't serializable is synced: it is linearizable in its cluster, as etcd's. A
//     serializable read is local, and as old as the client's order allows.
//  3. What a composition can't do is refused before anything has taken effect.
//  4. The notifications of a watch stream whose client doesn't read are bounded (maxUnread).
//
// The package is a client: it knows nothing of what stands behind the clusters.
package composed
