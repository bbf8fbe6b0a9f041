package kvwire

import (
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
)

// Size is how many bytes Append appends.
func Size(kv *mvccpb.KeyValue) int {
	n := 0
	for _, v := range [...]int64{kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease} {
		if v != 0 {
			n += 1 + protowire.SizeVarint(uint64(v))
		}
	}
	for _, v := range [...][]byte{kv.Key, kv.Value} {
		if len(v) > 0 {
			n += 1 + protowire.SizeBytes(len(v))
		}
	}
	return n
}

// Append appends a KeyValue to b.
func Append(b []byte, kv *mvccpb.KeyValue) []byte {
	b = appendBytes(b, 1, kv.Key)
	b = appendNumber(b, 2, kv.CreateRevision)
	b = appendNumber(b, 3, kv.ModRevision)
	b = appendNumber(b, 4, kv.Version)
	b = appendBytes(b, 5, kv.Value)
	return appendNumber(b, 6, kv.Lease)
}

func appendBytes(b []byte, n byte, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return protowire.AppendBytes(append(b, n<<3|byte(protowire.BytesType)), v)
}

func appendNumber(b []byte, n byte, v int64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(append(b, n<<3), uint64(v))
}
