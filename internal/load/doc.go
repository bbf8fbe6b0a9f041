// Package load knows what keeps the loops of the partitions busy: how much of the time each
// loop works, which slots cause that, and which placement prefixes are the hottest.
//
// The time of a loop is measured as a whole, each time that it has been woken. It is shared out
// to slots by samples of commands, in proportion to their weights: to time each command would cost
// more than some of them take. All is decayed with a time constant of [Window]. The prefixes of a
// partition are in a small sketch (space-saving: Metwally, Agrawal, El Abbadi 2005), so that
// their number costs nothing.
//
// Invariants:
//
//  1. Nothing here affects the state: servers may have different loads.
//  2. The loads of the slots of a partition, with the part that no sample explains, add up to
//     the time of its loop. A slot that moves takes its load along.
//  3. To count and to sample allocate nothing.
//
// Time comes in through [Meter.Fold]. Request in: the loops call [Meter.Worked] and the
// application of commands [Meter.Sample], from any goroutine. Out: [Meter.Snapshot].
package load
