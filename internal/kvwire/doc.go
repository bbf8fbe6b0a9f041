// Package kvwire holds key-values in their wire format: etcd's KeyValue,
// encoded byte for byte as protobuf does.
//
// The store keeps a [KeyValue], the backend file and a [RangeResponse] get
// its bytes; only where another of etcd's messages has to contain it does it
// become an mvccpb.KeyValue, which shares its key and value. So a key-value
// is encoded once, when it is written, and is one allocation without
// pointers.
//
// The most frequent requests are decoded by hand, too.
//
// Invariants:
//
//  1. A KeyValue's bytes are those of proto.Marshal, or of another writer that
//     leaves no field out of its place: every field at most once, in ascending order
//     of numbers, and nothing else. Accessors rely on it; [Parse] makes it so.
//  2. A KeyValue's bytes, and the slices that its accessors return, are never
//     written to.
//
// The package must not import anything of stoa.
package kvwire
