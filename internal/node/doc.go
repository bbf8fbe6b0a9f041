// Package node is one server's life: it recovers the state from the data
// directory, gives package replica its goroutines, disk and network, and
// answers the requests that the gRPC services pass on. It holds no protocol
// logic; that is in replica, sequencer and apply.
//
// # From the start to the first answer
//
// [Start] opens the backend file and the write-ahead log (open.go), loads the
// stores, replays the log and starts, per partition, a goroutine that runs
// Replica.Work when it is woken (loops.go), one goroutine that writes the log
// for all of them (disk.go), one that flushes the stores to the file
// (flush.go), and the transport (network.go).
//
// # The path of a request
//
// write.go hands writes to Replica.Submit and waits, writelater.go has the outcome given to
// its caller instead; read.go asks for a read
// point, takes the read locks of the partitions concerned, and evaluates.
// session.go gives package session/host what it needs to carry out sessions
// here. A snapshot from the leader replaces the file and lets the node recover
// anew from it (install.go), in the same process and by the same code as a
// restart. The replica that comes up has the calls of the one before it, so
// that writes in flight at the leader are answered.
//
// # Beside requests
//
// The log lines and the steps of extensions' calls are kept for clients that ask for them
// (calllog.go); they are no state.
//
// Errors carry a [fault.Fault]; package rpc knows their texts.
//
// Invariants:
//
//  1. A failed sync or flush, and data that can't be read or that contradicts its log,
//     end the process through Config.Fatal; nothing is acknowledged after it (I5, I6).
//  2. The write-ahead log is released only up to what the backend file holds
//     durably.
//  3. No client's request fails because a follower installs a snapshot.
//  4. A flush takes all partitions at one cut, under all their locks.
package node
