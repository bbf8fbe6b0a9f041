// Package stoapb is stoa's own contract with clients, beside etcd's, which is
// imported from go.etcd.io/etcd/api/v3. Read the .proto files; the Go code is
// generated from them by api/generate.sh.
//
// Invariant: field numbers are never reused.
package stoapb
