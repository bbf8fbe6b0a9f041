// Package allocs keeps how often an operation of the hot paths allocates: its test
// runs their benchmarks and compares what they say with testdata/allocs.txt.
//
// It uses nothing of stoa's itself. The benchmarks are built without the race
// detector, which allocates by itself.
package allocs
