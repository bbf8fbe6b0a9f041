// Package peerpb is the wire contract between the servers of one cluster: the
// link that carries everything one server tells another, and the transfer of
// snapshots. Read peer.proto; the Go code is generated from it by
// api/generate.sh.
//
// Invariants:
//
//  1. Field numbers are never reused. Servers of neighbouring versions talk to
//     each other during an upgrade.
//  2. Raft messages travel as opaque bytes (package raftwire), so that their
//     cost is not protobuf's.
package peerpb
