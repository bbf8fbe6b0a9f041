// Package fault names every way in which a request can fail.
//
// The core (store, lease, apply, node) returns these errors, wrapped or bare;
// only internal/rpc turns them into gRPC codes and etcd's texts. A fault has a
// number, so that it can be returned from the leader to the server that a
// client is connected to.
//
// The package imports nothing of stoa.
package fault
