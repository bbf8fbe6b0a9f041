// Package faults kills and pauses real servers under load and checks what the clients
// saw.
//
//	go test -tags faults ./test/faults                      stoa: P = 1 and 3, kills and pauses
//	go test -tags faults ./test/faults -load=2m -seed=7 -pause=300ms
//	go test -tags faults ./test/faults -run TestMutants -mutants    seeded bugs are detected
//	STOA_COMPAT_SERVER=etcd go test -tags faults ./test/faults
//
// Clients write single keys and, by transactions, several keys of different
// directories (so of different partitions), and read one key or all of them, through
// every server. Each write carries an identifier of its own. What is shown:
//
//  1. Linearizable: one order explains all answers, of single-key and multi-key
//     operations alike (porcupine, history.go and model.go). The model knows revisions:
//     they grow with the order, and a read's content is the state at its header.
//  2. No acknowledged write is lost: each is in the history that a watch from
//     revision 1 delivers at the end, at the revision that its answer named,
//     and in full.
//  3. A watch that stays open through all the faults delivers the same history,
//     once, in order.
//  4. At the end all servers have the same content, by HashKV.
//
// A write whose answer never came is unknown: it may have happened or not. Whether, and
// at which revision, is read from the final watch, which is what makes long histories
// checkable; if the watch were wrong, the answers that others got would contradict it.
//
// Sessions (session_test.go, sessionhistory.go) send reads and writes of
// several partitions without waiting, through stoa's own client, while servers
// are killed and stopped and leaders move. Compared are what every session sent
// and was answered, and the final history. Each checker is shown to detect a
// broken history:
//
//  5. A session's writes take effect in the order in which they were sent, each once,
//     and those that do are a prefix of those that were sent.
//  6. Strict and causal reads show the state at their revision, which covers all that
//     the session has seen, sent and been told of, and nothing that it sent later.
//  7. Events of ordered watches come in one order, completely, and before the answer
//     to a read that reflects them.
//  8. A client that has read /ready reads the data that was made ready, on any
//     server.
//
// Transactions over lists (appends.go) and locks with fencing tokens under leases (locks.go):
//
//  9. Transactions are strictly serializable (package elle).
//  10. What is written with a lock's token is written by the lock's owner; a lease lives as
//     long as it was promised to, and ends afterwards.
//
// Members come and go under the same load (members_test.go), and a leader that is stopped around
// its removal answers no read from before what the others have acknowledged since (removed_test.go).
//
// With -network each server is in a network namespace of its own, and TestNetwork cuts, delays
// and spoils the links between them and to the clients, in one or both directions (network.go),
// beside kills and pauses: all of the above holds. Keys move between partitions meanwhile (moves.go);
// in the end they have arrived. Members are replaced (members.go). Servers change
// between releases (releases.go); in the end all run the later one.
//
//	go test -tags faults ./test/faults -network -run TestNetwork     needs root
//
// Each test logs how many faults of each kind were done. Those that the servers have refused, such
// as moves of leaders, aren't counted.
//
// In cases named clocks each server's wall clock is set by itself, by days, and goes at another rate
// (clocks.go, package clock).
//
// With -disks each server's data are on a disk of its own (package disk), and TestDisks cuts power, so that what wasn't
// synced is lost, has syncs and writes fail, and disks fill up, hang and be slow (disks.go).
//
//	go test -tags faults ./test/faults -network -disks -run TestDisks
//
// Failover shows for how long no write is acknowledged when the leader is
// killed.
package faults
