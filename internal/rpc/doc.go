// Package rpc has etcd's gRPC services, one file each.
//
// A service validates a request, hands it to the [Node], fills in the answer's
// header, and turns a fault into etcd's code and text. It has no other logic.
//
// Invariants:
//
//  1. A request that etcd refuses for its form is refused here with the same
//     code and text, before it costs anything.
//  2. Errors become gRPC statuses in errors.go and nowhere else.
//  3. No answer leaves without cluster, member and term in its header (the few
//     that have none in etcd excepted).
//
// The package must not import raft, the log, the backend, the store's inside or
// apply: it sees the server through the interfaces in node.go.
//
// In: grpc calls the methods of the service types. Out: the [Node]'s methods and
// the watch hub's streams.
package rpc
