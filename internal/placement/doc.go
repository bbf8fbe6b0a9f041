// Package placement assigns keys to partitions.
//
// A key's placement prefix is its directory, at most two levels deep; the hash
// of the prefix is its slot, one of [Slots]; a table gives each slot's
// partition. So the keys of one directory lie together, a Range inside one
// directory touches one partition, and flat keys spread. Rules put single keys
// and whole subtrees into slots of their own; the longest that matches counts. Pins are
// rules whose slots stay in one partition while others move.
//
// Invariants:
//
//  1. A [Map] is immutable and may be used from any goroutine. A new map is a new value.
//  2. The same key has the same slot under the same rules on every server and in
//     every version: the prefix and the hash are part of the data format.
//  3. [Map.Range] names every partition that can hold a key of the range. It may
//     name more, never fewer, and always at least one. [Map.Wide] does so for as
//     long as a [Transit] lasts.
//  4. [Difference] holds every key that two maps put into different partitions. In a
//     [Transit] such a key is where the one map or the other says, which the cursor
//     alone decides; all others are where both say.
//  5. All keys of a run ([Map.Run]) are in one partition.
//  6. All keys under a pin are in one partition, but for those of deeper pins, and no change
//     of other slots moves them.
//  7. In a [Transit] that is apart, what the map says of a key or a range depends on the cursor
//     only if it is about partitions that take part, whatever the cursor is.
//
// Request in: the router and apply ask with keys and ranges. Out: partition
// numbers and sets of them. Of stoa the package imports radix only.
package placement
