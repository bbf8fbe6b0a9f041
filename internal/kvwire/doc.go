// Package kvwire encodes etcd's KeyValue, byte for byte as protobuf does.
//
// It is for where one is encoded for every request or every write: it takes a third
// of the time of protobuf's reflection and no memory of its own. Whoever needs it
// less often uses protobuf; there is no decoder.
//
// Invariant: Append appends Size bytes, and they are those of proto.Marshal.
//
// The package must not import anything of stoa.
package kvwire
