// Package client is the Go client of stoa. It is etcd's client, with what stoa
// has beside etcd's API: code written for go.etcd.io/etcd/client/v3 moves over by
// changing the constructor.
//
// The package knows stoa's API and etcd's client libraries, and nothing of the
// server.
package client
