// Package cache keeps the keys of a prefix as a cluster has them, from the events of a watch, and
// answers ranges from them. It is a state machine: it knows no connection, goroutine or clock.
//
// A Prefix is told what its watch gets (Begin, Take, End), and loads the keys that were there before
// by pages, all at one revision (Wants, Load). What it shows is a View, which never changes:
//
//	the watch ──► Prefix: Take ──► View ──► Answer ──► a local client
//	                        ▲
//	   a member ──► Load ───┘ once, and after each gap
//
// Invariants:
//
//  1. A View has exactly the keys of the cluster at its revision, and answers as the cluster
//     would at that revision.
//  2. The revisions of a Prefix's Views go up while there is no gap, and there is no View from a gap on
//     until all keys are loaded again.
//  3. The keys of all Prefixes of a Budget, and what waits for a page, take no more than that: a
//     Prefix that would shows nothing, and keeps nothing.
//
// A Prefix may not be used by several goroutines at a time, but for Prefix.View. A View may.
package cache
