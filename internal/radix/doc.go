// Package radix is an ordered map from strings to values that never changes: adding
// and removing a key gives another map, which shares all nodes with the first but those
// on the path to that key. So a state of many keys is replaced as a whole, by one pointer, at
// the cost of the difference.
//
// It is a radix tree over bytes. Beside a key it finds all keys that a given one begins
// with, and the node under which exactly those lie that begin with a given one: the two
// lookups that patterns with prefixes need.
//
// Invariants:
//
//  1. Nodes reachable from a [Tree] are never written to: any number of
//     goroutines may read it.
//  2. But for the root, a node has a key or at least two edges, and no two edges begin
//     with the same byte: two trees of the same keys have the same shape.
//  3. Labels own their bytes, so that a removed key isn't kept in memory by keys that
//     shared a prefix with it.
//
// The package imports nothing of stoa.
package radix
