// Package commit is the protocol of transactions over several clusters: which requests a
// client sends to which cluster, and what it concludes from the answers. DESIGN.md argues
// that it is atomic and serializable.
//
// A [Coordinator] executes one transaction: it locks all keys, the caller decides on their
// values, and it commits or abandons. A [Recovery] deals with a lock that was met: it
// completes a committed transaction, and removes the locks of one that can't commit any
// more. Both are state machines: Next is given the answers to the requests that it returned
// before, and returns those to send next, all at once. The requests are conditional
// transactions of one cluster, which etcd and stoa execute alike.
//
// Invariants:
//
//  1. The only commit point is one request to the home cluster, which changes the record from
//     pending to committed.
//  2. Home's locks and the record are written before any other lock. So a lock without a
//     record is one of a transaction that will not commit, or that has removed it already.
//  3. A pending record has the client's lease, a committed one has none. It stays until every
//     lock in the other clusters has been removed.
//  4. Locks have no lease, and are there from before the commit until the keys in their
//     cluster have the transaction's values.
//  5. The requests that begin and prepare are sent once. All others may be sent again.
//
// The package is pure: it must not import the clock, the network, gRPC or an etcd client.
package commit
