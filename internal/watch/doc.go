// Package watch orders changes and delivers them to watchers.
//
// Invariants (together they are the guarantees of a watch):
//
//  1. A watcher gets every event of its range from its start revision on, once,
//     in revision order.
//  2. All events of one revision come in one response.
//  3. A progress notification with revision R promises that no event at or
//     below R is still to come. Neither events nor progress ever go back.
//  4. Reads of any partition of this server show every revision that a stream
//     of etcd's API has announced.
//  5. Publishing never waits for a watcher, and the memory held for a watcher
//     that doesn't read is bounded.
//
// The package knows stores by the type of their changes and by the History
// function alone; it must not import raft, the log, the backend or gRPC's
// server. It starts no goroutine and reads no clock: [Hub.Run] and the receivers
// belong to the caller.
//
// In: the apply loops call [Hub.Changes] and [Hub.Advance]; a client's requests
// come in by [Stream.Create], [Stream.Cancel] and [Stream.RequestProgress].
// Out: [Stream.Recv]. DESIGN.md explains the design.
package watch
