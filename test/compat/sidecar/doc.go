// Package sidecar shows, on real processes, that etcd's clients can't tell `stoa sidecar` from a
// server: etcdctl and clientv3, on one and three servers, also while these are killed.
package sidecar
