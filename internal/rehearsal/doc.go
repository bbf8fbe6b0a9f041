// Package rehearsal runs extensions as a server does, without a server: requests
// one after the other against keys that are made up, on a developer's machine.
//
// There is no second implementation of anything: a [Rehearsal] is an
// [apply.Machine] over an empty store, to which every request goes as the command
// that a server would have logged. What the package adds is that somebody looks:
// a [Report] says what was answered, what ran, what it took and what changed.
//
// Invariants:
//
//  1. (I6) The same requests have the same reports, on every machine.
//  2. A rehearsal has one partition, so its revisions are dense and what it shows
//     is what a cluster does whatever the number of its partitions.
//  3. Leases end when a request says so: there is no clock.
//
// In: [New], [Rehearsal.Register], [Rehearsal.Do], [Rehearsal.Watch]. Out: Reports.
// Not for servers: nothing is locked, nothing is kept.
package rehearsal
