// Package process starts, stops, kills, pauses and restarts real servers for the
// tests, the benchmarks and the fault injection under test.
//
// It knows servers only as etcd knows them: a binary, etcd's flags, a line in the
// log that says that the server is ready, a client port. Therefore the same test
// runs on stoa and on etcd, and a test that fails on etcd is itself wrong. The one
// exception is ZooKeeper, for the benchmarks: zookeeper.go gives it a configuration
// file and its own ready lines, and all the rest is the same.
//
// Promises:
//
//  1. A server that was started here is killed at the end of the program that
//     started it.
//  2. Ports are taken from outside the kernel's ephemeral range, so that a server
//     that is restarted finds its own port free.
//  3. Logs are appended to one file per server over all its restarts; a test that
//     fails keeps its directory and prints where it is.
//
// It must not import anything of stoa's: it sees the daemon from outside.
package process
