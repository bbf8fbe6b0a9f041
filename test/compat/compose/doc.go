// Package compose tests compositions of real clusters: two of stoa, two of
// etcd, one of each. The guarantees are checked over recorded histories in
// test/compose; the tests here are about single requests, sessions, watches and
// failures.
package compose
