package kvwire

import (
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

var errRecord = errors.New("record is not a KeyValue")

// Parse reads a KeyValue with a key, of any encoder. It shares the bytes of
// raw, unless their fields are not in ascending order.
func Parse(raw []byte) (KeyValue, error) {
	if ordered(raw) {
		return alias(raw), nil
	}
	var m mvccpb.KeyValue
	if err := proto.Unmarshal(raw, &m); err != nil {
		return KeyValue{}, fmt.Errorf("%w: %w", errRecord, err)
	}
	if len(m.Key) == 0 {
		return KeyValue{}, errRecord
	}
	return Of(&m), nil
}

// Key returns the key of an encoded KeyValue without decoding the rest.
func Key(raw []byte) ([]byte, error) {
	if len(raw) > 0 && raw[0] == tagKey {
		if key, n := protowire.ConsumeBytes(raw[1:]); n > 0 && len(key) > 0 {
			return key, nil
		}
	}
	kv, err := Parse(raw)
	return kv.Key(), err
}

// ordered reports whether invariant 1 holds for raw and it has a key.
func ordered(raw []byte) bool {
	last := byte(0)
	for at := raw; len(at) > 0; {
		tag := at[0]
		if tag <= last || last == 0 && tag != tagKey {
			return false
		}
		n := 0
		switch tag {
		case tagKey, tagValue:
			var v []byte
			if v, n = protowire.ConsumeBytes(at[1:]); tag == tagKey && len(v) == 0 {
				return false
			}
		case tagCreate, tagMod, tagVersion, tagLease:
			_, n = protowire.ConsumeVarint(at[1:])
		default:
			return false
		}
		if n < 0 {
			return false
		}
		last, at = tag, at[1+n:]
	}
	return len(raw) > 0
}
