// Package metrics is what a server shows on /metrics.
//
// There are two ways for a number to get there. How long something took is
// observed where it happens, in the fields of Metrics. All else (who leads, how
// many puts there were, how far a partition has applied) is asked for when
// somebody looks: the server hands in a function that returns its State, and
// nothing on a request's way costs more than an atomic addition.
//
// Where the meaning is etcd's, so is the name, so that dashboards and alerts
// made for etcd work; a number that etcd has once and stoa once per partition is
// there as etcd's sum and as stoa_partition_…{partition}.
//
// Invariants:
//
//  1. Everything is registered in the Registry that New makes: two servers in
//     one process don't see each other's numbers.
//  2. Every name has one meaning for the life of the program; none depends on
//     settings.
//
// Packages that bring collectors of their own (rpc, transport) have them
// registered in the same Registry.
//
// The package knows no other package of stoa than version.
package metrics
