package cluster

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// A mirror that serves reads keeps, behind each value, what the key is at its source and can't
// be in the target: revisions, version and lease. Each is 8 bytes, big-endian:
//
//	value | create revision | mod revision | version | lease
const stampSize = 4 * 8

// Stamped is the value of a key with its stamp.
func Stamped(kv *mvccpb.KeyValue) []byte {
	b := make([]byte, 0, len(kv.Value)+stampSize)
	b = append(b, kv.Value...)
	for _, n := range []int64{kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// Unstamp makes of a key of the target, whose value has a stamp, the key of the source.
func Unstamp(kv *mvccpb.KeyValue) error {
	n := len(kv.Value) - stampSize
	if n < 0 {
		return fmt.Errorf("%q was not written by a mirror: %d bytes are too few", kv.Key, len(kv.Value))
	}
	stamp := kv.Value[n:]
	for i, to := range []*int64{&kv.CreateRevision, &kv.ModRevision, &kv.Version, &kv.Lease} {
		*to = int64(binary.BigEndian.Uint64(stamp[8*i:]))
	}
	kv.Value = kv.Value[:n:n]
	return nil
}
