// Package fault names every way in which a request can fail.
//
// The core (store, lease, apply, node) returns these errors, wrapped or bare;
// only internal/rpc turns them into gRPC codes and etcd's texts. A fault has a
// number, so that it survives the way from the leader back to the server that
// a client talks to.
//
// The package imports nothing of stoa.
package fault
