// Package kvwire holds key-values in the form in which they travel: etcd's
// KeyValue, encoded byte for byte as protobuf does.
//
// The store keeps a [KeyValue], the file gets its bytes, and so does whoever it is
// sent to in a [RangeResponse]; only where another of etcd's messages has to contain
// it does it become an mvccpb.KeyValue, which shares its key and value. So a key-value
// is encoded once, when it is written, and is one allocation without pointers.
//
// The requests that a busy server reads most are read by hand, too.
//
// Invariants:
//
//  1. A KeyValue's bytes are those of proto.Marshal, or of another writer that
//     leaves no field out of its place: every field at most once, in ascending order
//     of numbers, and nothing else. Accessors rely on it; [Parse] makes it so.
//  2. Nobody writes to a KeyValue's bytes, nor to what its accessors return.
//
// The package must not import anything of stoa.
package kvwire
