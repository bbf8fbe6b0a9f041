// Package namespace translates messages of etcd's API between a client whose keys have no prefix and a
// cluster where they have one. It works on encoded messages, and changes only fields that have keys:
//
//	Namespace.Method ──► Request.Apply ──► a member ──► Answer.Apply
//
// Invariants:
//
//  1. A translated request touches only keys that begin with the prefix.
//  2. The answer to it, translated back, is that of a cluster with these keys only, without the prefix.
//  3. A request with a field that isn't known here is refused: it might be a key. In an answer, such a
//     field is passed on.
//
// Keys are found by the names of their fields (keys.go). A test compares that table with the API, so
// that a release with new fields can't overlook one.
package namespace
