package kvwire

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
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
		marshalled, err := proto.MarshalOptions{Deterministic: true}.Marshal(got.Message())
		require.NoError(t, err)
		require.Equal(t, string(marshalled), string(got.AppendTo(nil)))
		require.Equal(t, len(marshalled), got.Size())
		require.Equal(t, got.Plain(), !want.PrevKv && !want.IgnoreValue && !want.IgnoreLease)
	})
}

// An answer to a put is read as protobuf does, if it is one without an earlier value.
func FuzzReadPutAnswer(f *testing.F) {
	for _, m := range []*pb.PutResponse{
		{}, {Header: &pb.ResponseHeader{}}, {Header: &pb.ResponseHeader{ClusterId: 1 << 63, MemberId: 2, Revision: 1 << 40, RaftTerm: 4}},
		{Header: &pb.ResponseHeader{Revision: 5}, PrevKv: &mvccpb.KeyValue{Key: []byte("k")}},
	} {
		raw, err := proto.Marshal(m)
		require.NoError(f, err)
		f.Add(raw)
		f.Add(append(raw, raw...))
		require.Equal(f, m.Header != nil && m.PrevKv == nil, ReadPutAnswer(raw) != nil)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got := ReadPutAnswer(raw)
		if got == nil {
			return
		}
		var want pb.PutResponse
		require.NoError(t, proto.Unmarshal(raw, &want))
		require.True(t, proto.Equal(&want, got), "%v is not %v", &want, got)
	})
}
