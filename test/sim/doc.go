// Package sim runs whole clusters inside one goroutine, over simulated time,
// network and disks, and checks the results. A seed is a whole run: every
// delay, fault and request is drawn from it, and what failed once fails again.
//
//	go test ./test/sim -run TestSim -seed=1 -runs=100
//	go test ./test/sim -run TestSim -seed=1 -runs=100 -swarm      # each with only some of what runs can have (features.go)
//	go test ./test/sim -run TestSim -seed=4711 -runs=1 -events    # tell everything
//	go test ./test/sim -run TestSim -seed=7 -runs=1 -mutation=flush-apart
//	go test ./test/sim -run TestSim -seed=7 -runs=1 -length=2s -only=3,7   # of its troubles only these, and a part of the time
//
// # What is real and what is not
//
// Each server is put together (server.go, core.go) as package node does it,
// from the same parts: replica, sequencer, raft, raftlog, wal, store, apply,
// lease, watch. Simulated is the environment of these parts: the disk below the
// log (vfs.Mem, which forgets and tears what was not synced), the file
// (backend.Mem), the transport (network.go), the clock and the goroutines. The
// loop (loop.go) decides what runs next: a group's turn, a message, a tick, the
// end of a sync, a client's step, a fault (trouble.go). A group's turn is one
// step; what can go wrong within it is for package interleave and for the race
// detector (stress tests of the packages).
//
// # What is checked
//
// The ledger is the history as the first server to apply each piece saw it.
//
//   - I1: no two writes share a revision, with one partition revisions are
//     dense; no strict answer has a header below a revision that any client was
//     shown before the request was sent (answers, watch events, progress), and
//     a write is above it.
//   - I2: every answer is what a sequential etcd (model.go) would have said at the
//     revision in its header; there is an order of all strict requests, the
//     ledger's or else one that porcupine finds, and of those to each key without looking at revisions.
//   - I3: pairs of keys in different partitions, only ever written together, are
//     equal in every revision, and so in every answer and watch.
//   - I4: every watch, through all resumptions, has got every change in its range
//     once, in order, whole revisions; progress neither lies nor goes back nor
//     stays away. A server's serializable answers are not older than what its watches
//     had announced before.
//   - I5: acknowledged writes are in the history, and in the end in every live
//     server; unacknowledged ones took effect once or not at all.
//   - I6: every server applies the same, at any time, and is equal to the history
//     after each restart, each installed snapshot and in the end.
//   - Once everything has healed, every server serves writes and reads soon,
//     all become equal, and no request waits for ever.
//   - No request at a follower fails because a snapshot is installed there.
//   - No lease is revoked by a leader before its time.
//     What clients are told of leases is so at a moment of the request, and no acknowledged renewal is missing in it (lessee.go).
//   - In every other run with some of all clients take backups (saver.go): each is the history up to its
//     revision, has what was acknowledged before it was asked for unless it has to be stale, and is the
//     beginning of a new cluster.
//   - In every sixth run with some of all the servers have real files, which are defragmented beside all else (files.go).
//   - In every third run clients use extensions (extension.go): each call answers and
//     changes what a model of it says, there is an order of the increments and
//     of what goes through the queue, and all servers come to know the same extensions.
//   - In every fourth run clients have sessions (session.go), lose their
//     connections, come back anywhere and send again: what a session asks takes
//     effect once, in order and without holes; replies come in order, each
//     once; strict and causal reads see all that the session has seen, has been
//     handed over, and what its watches begin behind, and no more than was
//     asked before; ordered watches deliver in one order, and before replies
//     that reflect events; a session outlives each request that was answered by
//     its ttl.
//   - In some of the runs with some of all there are users with few rights (few.go): what they do, and are told, they have the right
//     to, at its place in the log, and they are refused nothing else.
//
// With -guide runs are chosen by what few others have reached (guide.go, package cover), in a build that
// notes it; make sim-forever makes one.
//
// TestMutations shows that each of a list of seeded bugs is noticed. Those of the
// simulation's own servers are in mutation.go. Those of the code that servers run are edits
// of it, in mutations/*.txt (package mutate has the format): the test compiles them into a
// binary of its own, which -mutants=FILE keeps, to be run in this directory:
//
//	go test ./test/sim -run TestMutations -mutants=/tmp/mutants.test
//	cd test/sim && /tmp/mutants.test -test.run=TestSim -seed=5 -runs=1 -mutation=read-without-confirm
//
// DESIGN.md explains the design and lists the bugs found.
//
// The package is used by its own tests alone and may import anything of stoa but
// node, rpc and what lies above them.
package sim
