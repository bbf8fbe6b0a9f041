// Package interleave executes the interleavings of a few goroutines, one by one: at each lock and
// each atomic operation it decides which of them goes on. So it finds what a stress test needs luck
// for, and finds it again.
//
// # How
//
// A scenario is a [World] of tasks. [Explore] executes it again and again. Only one task runs at a
// time; at a point, which is in front of each operation of package sync and sync/atomic, another
// may take its place: it is preempted. All schedules with up to a given number of preemptions are
// executed, those with the fewest first (Musuvathi and Qadeer, Iterative Context Bounding, PLDI
// 2007): most faults of this kind need one or two. A task that waits for a lock, or ends, is no
// preemption, and all ways to go on from there are taken.
//
// Production code has no points. They are compiled in by an overlay (package overlay), which has the
// packages under test import sync and atomic from here. A test of such a package explores a scenario
// wherever it stands; without the overlay it is skipped. TestScenarios compiles and runs all of them,
// and each mutation of mutations/*.txt, bugs of this kind, has to be noticed by one:
//
//	go test -v -timeout 0 ./test/interleave                     # minutes
//	go test -v -timeout 0 ./test/interleave -schedules 20000    # the first of each scenario
//	go test -v -timeout 0 ./test/interleave -run TestScenarios -scenario TestInterleavedStop -preemptions 3
//
// # What is not seen
//
// Operations on channels are no points: they happen together with what is around them. A task may
// not wait for a channel; receivers are tasks with a condition ([World.When]). What runs between two
// points isn't divided, so a missing lock is for the race detector to find: it is enough that
// each access is under some lock for both to be complete. Memory is sequentially consistent, as Go's
// locks and atomics are.
package interleave
