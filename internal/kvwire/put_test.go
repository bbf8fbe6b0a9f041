package kvwire

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// The decoder of puts must accept exactly the inputs that proto.Unmarshal
// accepts, with the same result: a leader of another version may use either.
func FuzzReadPut(f *testing.F) {
	whole, err := proto.Marshal(&pb.PutRequest{Key: []byte("k"), Value: []byte("v"), Lease: -7, PrevKv: true, IgnoreValue: true, IgnoreLease: true})
	require.NoError(f, err)
	f.Add(whole)
	f.Add(append(bytes.Clone(whole), whole...))             // each field twice: the last counts
	f.Add(protowire.AppendTag(nil, 9, protowire.BytesType)) // unknown and cut off
	f.Add(protowire.AppendVarint(protowire.AppendTag(nil, putKey, protowire.VarintType), 5))
	f.Add(protowire.AppendTag(protowire.AppendTag(nil, 3, protowire.StartGroupType), 3, protowire.EndGroupType))
	f.Add(protowire.AppendTag(nil, 3, protowire.EndGroupType))
	f.Add(protowire.AppendVarint(nil, uint64(protowire.MaxValidNumber+1)<<3))
	f.Add([]byte{0x20, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01}) // a bool of ten bytes
	f.Fuzz(func(t *testing.T, b []byte) {
		var want pb.PutRequest
		wantErr := proto.Unmarshal(b, &want)
		got, err := ReadPut(b)
		require.Equal(t, wantErr == nil, err == nil, "proto.Unmarshal: %v, ReadPut: %v", wantErr, err)
		if err != nil {
			return
		}
		require.True(t, proto.Equal(&pb.PutRequest{
			Key: want.Key, Value: want.Value, Lease: want.Lease,
			PrevKv: want.PrevKv, IgnoreValue: want.IgnoreValue, IgnoreLease: want.IgnoreLease,
		}, got.Message()), "%v is not %v", got.Message(), &want)
		again := PutOf(&want)
		require.True(t, proto.Equal(got.Message(), again.Message()))
		require.Equal(t, got.Plain(), !want.PrevKv && !want.IgnoreValue && !want.IgnoreLease)
	})
}
