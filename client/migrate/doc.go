// Package migrate moves the keys and leases of a running cluster into another one, of stoa
// or etcd either way, while the source is written.
//
// It mirrors (package mirror) until the target is the source, compares both, and goes on
// mirroring until it is asked to cut over. Then it waits until the source is no longer
// written, grants the source's leases in the target and attaches them to their keys,
// compares again, keys and leases, and removes its mark from the target. Clients can go to
// the target from then on.
//
// Leases are granted at the cut-over and not before: in the target they would run out while
// nobody there renews them. Until then the source decides; a key whose lease ends there is
// deleted in the target as any other. In the target a lease has its ID, its TTL and, if the
// target is stoa, its remaining time; in etcd it has all of its TTL, as after a change of
// leader.
//
// What isn't moved: history, revisions and versions of keys (unless the target was restored
// from a snapshot of the source first, and only the difference is copied), users and roles,
// alarms, members, sessions.
//
// It can be stopped or killed at any point and started again: the mark is all its state. A
// second one takes over from the first. Requests about leases are not protected by the mark;
// they are idempotent, and leases of the target are revoked only if the source lacks them.
package migrate
