// Package differential runs the same operations on real etcd and on the server
// under test, side by side, and compares every answer.
//
//	go test ./test/compat/differential
//	STOA_COMPAT_SERVER=etcd go test ./test/compat/differential    etcd against etcd
//	go test ./test/compat/differential -rapid.checks=1000
//
// With one partition an answer must be etcd's, byte for byte, once the ids of
// cluster and member and the Raft term are taken out: the same revisions, the
// same errors with the same texts. With several partitions revisions may have
// gaps, and only that difference is allowed: a table pairs each of etcd's
// revisions with the one that the other server gave to the same write, requests
// are translated forth by it and answers back, and everything that then differs
// is a difference.
//
// A workload is either a script, written for the corners that one thinks of, or drawn
// by rapid, for those that one does not. A sequence that differs is shrunk on fresh
// servers.
package differential
