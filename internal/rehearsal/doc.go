// Package rehearsal runs extensions as a server does, without a server: requests
// one after the other against test data, on a developer's machine.
//
// It has no implementation of its own: a [Rehearsal] is an
// [apply.Machine] over an empty store, to which every request goes as the command
// that a server would have logged. The package adds only the observation: a [Report] has
// the answer, the handlers that ran, their usage and the changes.
//
// Invariants:
//
//  1. (I6) The same requests have the same reports, on every machine.
//  2. A rehearsal has one partition, so its revisions are dense. All else is the
//     same as in a cluster with any number of partitions.
//  3. Leases end when a request says so: there is no clock.
//
// In: [New], [Rehearsal.Register], [Rehearsal.Do], [Rehearsal.Watch]. Out: Reports.
// Not for servers: nothing is locked, nothing is kept.
package rehearsal
