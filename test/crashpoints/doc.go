// Package crashpoints kills a server at each system call between a request and its answer, and
// behind it until the state is flushed, starts it again, and looks: what was acknowledged is
// there, and what was not is there in whole or not at all.
//
//	make test-crashpoints           every call
//	go test ./test/crashpoints      every fifth one
//
// The calls are those that change something: on files of the data directory, and answers on
// sockets. Each is counted from the request on, over all threads, so the points differ a
// little from run to run; a thing is done when a run has ended without a kill.
//
// A kill leaves the page cache. So all is done once more on a disk of package disk, which loses at each kill what wasn't
// synced (needs root and FUSE).
//
// In the same way, calls fail (failures_test.go): with an error at each kind of call, for
// each kind of file.
package crashpoints
