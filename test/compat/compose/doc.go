// Package compose tests compositions of real clusters: two of stoa, two of etcd, one
// of each. What the guarantees are is checked over recorded histories elsewhere; here
// it is what callers see of single requests, sessions, watches and failures.
package compose
