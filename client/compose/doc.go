// Package compose makes one client of several clusters, of stoa or of etcd: each
// keeps its own keys, and the client keeps one order over all of them.
package compose
