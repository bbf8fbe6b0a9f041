package kvwire

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

func drawn(t *rapid.T) *mvccpb.KeyValue {
	number := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64())
	bytes := func(name string, least int) []byte {
		if rapid.Bool().Draw(t, "long "+name) { // its length takes more than a byte
			return rapid.SliceOfN(rapid.Byte(), 100, 300).Draw(t, name)
		}
		return rapid.SliceOfN(rapid.Byte(), least, 5).Draw(t, name)
	}
	return &mvccpb.KeyValue{
		Key: bytes("key", 1), Value: bytes("value", 0),
		CreateRevision: number.Draw(t, "create"), ModRevision: number.Draw(t, "mod"),
		Version: number.Draw(t, "version"), Lease: number.Draw(t, "lease"),
	}
}

func TestKeyValueIsTheMessage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawn(t)
		raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		require.NoError(t, err)
		kv := Of(m)
		require.Equal(t, raw, kv.Wire())
		require.Equal(t, len(raw), kv.Len())
		parsed, err := Parse(raw)
		require.NoError(t, err)
		for _, kv := range []KeyValue{kv, parsed, kv.Clone(), At(kv.Pointer())} {
			require.True(t, kv.Exists())
			require.True(t, proto.Equal(m, kv.Message()))
			require.Equal(t, string(m.Key), string(kv.Key()))
			require.Equal(t, string(m.Value), string(kv.Value()))
			require.Equal(t, m.CreateRevision, kv.CreateRevision())
			require.Equal(t, m.ModRevision, kv.ModRevision())
			require.Equal(t, m.Version, kv.Version())
			require.Equal(t, m.Lease, kv.Lease())
			bare := &mvccpb.KeyValue{Key: m.Key, CreateRevision: m.CreateRevision, ModRevision: m.ModRevision, Version: m.Version}
			require.True(t, proto.Equal(bare, kv.WithoutValue().Message()))
			require.Equal(t, proto.Equal(m, &mvccpb.KeyValue{Key: m.Key}), kv.IsTombstone())
		}
		key, err := Key(raw)
		require.NoError(t, err)
		require.Equal(t, m.Key, key)
	})
}

func TestNoneAndTombstone(t *testing.T) {
	none := Of(nil)
	require.Zero(t, none)
	require.False(t, none.Exists())
	require.False(t, none.IsTombstone())
	require.Nil(t, none.Message())
	require.Empty(t, none.Key())
	require.Zero(t, none.Lease())
	dead := Tombstone([]byte("k"))
	require.True(t, dead.Exists())
	require.True(t, dead.IsTombstone())
	require.Equal(t, []byte("k"), dead.Key())
	require.Zero(t, dead.ModRevision())
	require.True(t, Tombstone(nil).IsTombstone())
	require.Empty(t, Messages(nil))
	require.Len(t, Messages([]KeyValue{dead, dead}), 2)
}

// FuzzParse compares with protobuf.
func FuzzParse(f *testing.F) {
	for _, m := range []*mvccpb.KeyValue{
		{Key: []byte("k")},
		{Key: []byte("key"), Value: []byte("value"), CreateRevision: 3, ModRevision: 1 << 40, Version: 300, Lease: -5},
	} {
		raw, err := proto.Marshal(m)
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add([]byte{0x28, 1, 0x0a, 1, 'k'})                                                // a value that is a number
	f.Add([]byte{0x18, 7, 0x0a, 1, 'k', 0x0a, 1, 'l', 0x10, 0, 0x18, 0x80, 0, 0x3a, 0}) // out of order, twice, unknown
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := Parse(raw)
		var want mvccpb.KeyValue
		if proto.Unmarshal(raw, &want) != nil || len(want.Key) == 0 {
			return // we may accept a key that protobuf refuses; never the other way
		}
		require.NoError(t, err)
		want.ProtoReflect().SetUnknown(nil)
		require.True(t, proto.Equal(&want, got.Message()))
		key, err := Key(raw)
		require.NoError(t, err)
		if raw[0] == tagKey { // a key field is never repeated by our writer
			require.NotEmpty(t, key)
		}
	})
}

func BenchmarkAccessors(b *testing.B) {
	kv := Make(fmt.Appendf(nil, "/registry/pods/ns-%03d/pod-%08d", 1, 2), make([]byte, 256), Fields{1 << 20, 1 << 21, 1, 0})
	var n int64
	for name, read := range map[string]func(){
		"key": func() { n += int64(len(kv.Key())) }, "mod": func() { n += kv.ModRevision() },
		"value": func() { n += int64(len(kv.Value())) }, "lease": func() { n += kv.Lease() },
		"message": func() { n += kv.Message().Lease },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				read()
			}
		})
	}
}
