// Package audit writes which user asked for what, and with which result, as JSON lines:
// writes, changes of users, members and limits, and requests that were refused.
//
// Invariants:
//
//  1. No line holds a value, a password or a token. A [Record] has no field for one, and
//     [Record.Describe] takes from requests only the fields that it names.
//  2. Requests never wait for the file. A [Log] keeps at most MaxPending bytes for it; lines
//     that find no room, or that the file doesn't take, are dropped and counted, and the
//     file says so as soon as it takes lines again. (The alternative, to hold up all writes
//     while the disk of the audit log is full, would let that disk decide whether the
//     cluster serves, with a majority of the others idle.)
//  3. Lines are in the order of [Log.Add], which is that of the answers, not of revisions.
//
// In: package rpc adds a record when a request's answer is known. Out: the file.
//
// The package knows no gRPC and nothing of the server.
package audit
