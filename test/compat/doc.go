// Package compat shows, on real processes, that stoa is etcd to etcd's clients:
// to the real etcdctl and to go.etcd.io/etcd/client/v3.
//
//	go test ./test/compat                                one and three servers, P = 1, 2 and 4
//	STOA_COMPAT_MATRIX=1x1,3x2 go test ./test/compat     only these (servers x partitions)
//	STOA_COMPAT_SERVER=etcd go test ./test/compat        on etcd 3.7.3, to prove the tests right
//
// What the tests rely on:
//
//  1. Nothing here knows stoa but the few tests that skip on etcd by name. A test
//     that fails on etcd is wrong.
//  2. Tests of one configuration share one cluster; each has a prefix of its own,
//     its keys lie in several directories, hence in several partitions, and it
//     reckons revisions from those that the server handed to it. With several
//     partitions revisions may have gaps, so a test asks for equality only between
//     revisions that the server promised to be equal.
//  3. Tests that stop servers, fill quotas or depend on a fresh store start their own.
//
// The binaries are built when they are needed. Package differential, below, compares
// stoa and etcd answer by answer.
package compat
