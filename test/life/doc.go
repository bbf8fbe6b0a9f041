// Package life leads a cluster of real servers through the months of an operator: one step after the other, in an order
// that a seed draws, under a load that is checked.
//
//	go test ./test/life -steps 40 -seed 7 -partitions 4        P = 4, with TLS and users
//	go test ./test/life -plan defrag,downgrade,nospace         these steps, in this order
//
// Without -steps or -plan there is nothing to do. STOA_EARLIER names the program of the earlier release, for downgrade.
//
// The steps (steps_test.go has all) follow docs/operations.md and docs/security.md, with stoactl and etcdctl: restarts, members that
// are replaced, other numbers of partitions, defragmentation, compaction, backup and restore, releases, certificates, passwords
// and rights, a full quota, extensions, a lost majority.
//
// After each step (check_test.go):
//
//  1. No acknowledged write is lost, on no member, and each is once in each watch, in order: of etcd's client, of a
//     session, of a program behind a sidecar.
//  2. Leases that are kept alive exist, those that are not have ended.
//  3. All members have the same hash.
//  4. Members log nothing at the level error, answer all pages of health and metrics, and have about as many goroutines and files as at
//     the beginning.
//
// With -v each step logs the warnings and errors of the members, by their number, and what the members take of memory, goroutines,
// files and disk.
package life
