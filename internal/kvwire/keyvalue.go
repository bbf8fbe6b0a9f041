package kvwire

import (
	"unsafe"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
)

// KeyValue is a key-value that exists, or a tombstone, which has nothing but
// the key. The zero KeyValue is none.
//
// An accessor skips the fields before its own, which takes some nanoseconds;
// none of them copies or allocates.
type KeyValue struct{ wire string }

// Fields are the fields of a KeyValue other than key and value.
type Fields struct{ CreateRevision, ModRevision, Version, Lease int64 }

// The tags, in the order of the fields.
const (
	tagKey     = 1<<3 | byte(protowire.BytesType)
	tagCreate  = 2<<3 | byte(protowire.VarintType)
	tagMod     = 3<<3 | byte(protowire.VarintType)
	tagVersion = 4<<3 | byte(protowire.VarintType)
	tagValue   = 5<<3 | byte(protowire.BytesType)
	tagLease   = 6<<3 | byte(protowire.VarintType)
)

// Make encodes a KeyValue, in one allocation of exactly its size. The key
// field is encoded even if it is empty, as no client's key can be: so a
// tombstone is never the zero KeyValue.
func Make(key, value []byte, f Fields) KeyValue {
	size := 1 + protowire.SizeBytes(len(key)) + sizeNumber(f.CreateRevision) + sizeNumber(f.ModRevision) +
		sizeNumber(f.Version) + sizeBytes(value) + sizeNumber(f.Lease)
	b := protowire.AppendBytes(append(make([]byte, 0, size), tagKey), key)
	b = appendNumber(b, tagCreate, f.CreateRevision)
	b = appendNumber(b, tagMod, f.ModRevision)
	b = appendNumber(b, tagVersion, f.Version)
	b = appendBytes(b, tagValue, value)
	return alias(appendNumber(b, tagLease, f.Lease))
}

// Of encodes a message; nil is none.
func Of(m *mvccpb.KeyValue) KeyValue {
	if m == nil {
		return KeyValue{}
	}
	return Make(m.Key, m.Value, Fields{m.CreateRevision, m.ModRevision, m.Version, m.Lease})
}

// Tombstone is the KeyValue of a key that was deleted, as etcd's file has it.
func Tombstone(key []byte) KeyValue { return Make(key, nil, Fields{}) }

// Exists reports whether k is not the zero KeyValue.
func (kv KeyValue) Exists() bool { return kv.wire != "" }

// IsTombstone reports whether there is nothing but a key.
func (kv KeyValue) IsTombstone() bool {
	_, rest := bytesField(kv.wire, tagKey)
	return rest == "" && kv.wire != ""
}

// Wire is the encoding.
func (kv KeyValue) Wire() []byte { return bytesOf(kv.wire) }

// String formats like the message.
func (kv KeyValue) String() string { return kv.Message().String() }

// Len is the length of the encoding.
func (kv KeyValue) Len() int { return len(kv.wire) }

// Key returns the key.
func (kv KeyValue) Key() []byte {
	key, _ := bytesField(kv.wire, tagKey)
	return bytesOf(key)
}

// CreateRevision returns the revision at which the key was created.
func (kv KeyValue) CreateRevision() int64 {
	_, rest := bytesField(kv.wire, tagKey)
	v, _ := number(rest, tagCreate)
	return v
}

// ModRevision returns the revision at which it was written; a tombstone has none.
func (kv KeyValue) ModRevision() int64 {
	_, rest := bytesField(kv.wire, tagKey)
	_, rest = number(rest, tagCreate)
	v, _ := number(rest, tagMod)
	return v
}

// Version returns the number of writes since the key was created.
func (kv KeyValue) Version() int64 {
	f, _ := kv.numbers()
	return f.Version
}

// Value returns the value, nil if that is empty.
func (kv KeyValue) Value() []byte {
	_, rest := kv.numbers()
	value, _ := bytesField(rest, tagValue)
	return bytesOf(value)
}

// Lease returns the lease that it is attached to.
func (kv KeyValue) Lease() int64 {
	_, rest := kv.numbers()
	_, rest = bytesField(rest, tagValue)
	v, _ := number(rest, tagLease)
	return v
}

// Fields returns all but key and value.
func (kv KeyValue) Fields() Fields {
	f, rest := kv.numbers()
	_, rest = bytesField(rest, tagValue)
	f.Lease, _ = number(rest, tagLease)
	return f
}

// numbers reads the numbers between key and value, and returns what follows.
func (kv KeyValue) numbers() (f Fields, rest string) {
	_, rest = bytesField(kv.wire, tagKey)
	f.CreateRevision, rest = number(rest, tagCreate)
	f.ModRevision, rest = number(rest, tagMod)
	f.Version, rest = number(rest, tagVersion)
	return f, rest
}

// Into sets a message's fields. Key and value stay where they are.
func (kv KeyValue) Into(m *mvccpb.KeyValue) {
	key, rest := bytesField(kv.wire, tagKey)
	m.Key = bytesOf(key)
	m.CreateRevision, rest = number(rest, tagCreate)
	m.ModRevision, rest = number(rest, tagMod)
	m.Version, rest = number(rest, tagVersion)
	value, rest := bytesField(rest, tagValue)
	m.Value = bytesOf(value)
	m.Lease, _ = number(rest, tagLease)
}

// Message returns a message with the same content, nil for none.
func (kv KeyValue) Message() *mvccpb.KeyValue {
	if kv.wire == "" {
		return nil
	}
	m := &mvccpb.KeyValue{}
	kv.Into(m)
	return m
}

// Messages is Message for many, in two allocations.
func Messages(kvs []KeyValue) []*mvccpb.KeyValue {
	if len(kvs) == 0 {
		return nil
	}
	all, list := make([]mvccpb.KeyValue, len(kvs)), make([]*mvccpb.KeyValue, len(kvs))
	for i, kv := range kvs {
		kv.Into(&all[i])
		list[i] = &all[i]
	}
	return list
}

// Clone returns a copy in memory of its own.
func (kv KeyValue) Clone() KeyValue {
	return alias(append(make([]byte, 0, len(kv.wire)), kv.wire...))
}

// WithoutValue returns the KeyValue as if its value were empty, in the same
// memory. The lease is left out too.
func (kv KeyValue) WithoutValue() KeyValue {
	_, rest := kv.numbers()
	return KeyValue{kv.wire[:len(kv.wire)-len(rest)]}
}

// Pointer returns the address and length of the encoding, for structures with
// room for 12 bytes and not for 16; At is its inverse.
func (kv KeyValue) Pointer() (*byte, uint32) { return unsafe.StringData(kv.wire), uint32(len(kv.wire)) }

// At is the KeyValue of Pointer.
func At(p *byte, n uint32) KeyValue { return KeyValue{unsafe.String(p, n)} }

func alias(b []byte) KeyValue { return KeyValue{unsafe.String(unsafe.SliceData(b), len(b))} }

// bytesOf must not copy: a value can be large, and is read often.
func bytesOf(s string) []byte {
	if s == "" {
		return nil
	}
	return unsafe.Slice(unsafe.StringData(s), len(s))
}
