// Package command defines the content of an entry of a partition's log, and
// its encoding.
//
// An [Entry] is a batch: the commands of many clients under one stamp, applied
// one after the other. It is local to one partition, or a rendezvous of several
// when Parts names them; then each participant's log holds an equal copy, and
// the copies together are executed once.
//
// Invariants:
//
//  1. [Decode] is the inverse of [Entry.AppendTo]; any other input Decode
//     refuses or reads as an entry that can be encoded again. It never panics
//     and never allocates more than in proportion to its input.
//  2. Kinds are part of the log format: append, never renumber.
//  3. An entry that needs a later level than the program knows is refused, never read in
//     part.
//  4. Command i's own stamp follows from the entry alone ([Entry.StampOf]), so
//     every replica gives the same command the same revision.
//
// Entry in: the group's loop encodes clients' requests. Out: apply decodes
// them on every replica. The package imports placement for its sets,
// membership and version for the level that a command needs, and nothing else of stoa.
package command
