package transport

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
)

// The codec and protobuf read each other's encoding, for any size and any
// fragmentation by gRPC.
func TestCodecIsProtobuf(t *testing.T) {
	c := newCodec()
	for _, size := range []int{0, 10, largeBatch - 1, largeBatch, 1 << 20} {
		b := &peerpb.Batch{
			Raft: [][]byte{
				{1}, bytes.Repeat([]byte{7}, size), {}, {2, 3}, bytes.Repeat([]byte{8}, largeString),
				bytes.Repeat([]byte{9}, size/2), bytes.Repeat([]byte{9}, largeString-1),
			},
			Confirm:    &peerpb.Confirm{Round: 3, Terms: []uint64{4, 5}},
			ConfirmAck: &peerpb.ConfirmAck{Round: 2, Ok: true},
			Closed:     []*peerpb.Closed{{Group: 1, Index: 2, Revision: 3}},
			Calls:      []*peerpb.Call{{Id: 1, Method: 8, Body: []byte("call")}},
			Replies:    []*peerpb.Reply{{Id: 1, Body: []byte("reply")}},
			Ping:       9, AnswersLost: true, Settled: 7,
		}
		require.Equal(t, 9, b.ProtoReflect().Descriptor().Fields().Len(), "Marshal must know of every field, and they are all here")

		data, err := c.Marshal(b)
		require.NoError(t, err)
		flat := data.Materialize()
		var read peerpb.Batch
		require.NoError(t, proto.Unmarshal(flat, &read))
		require.True(t, proto.Equal(b, &read), "%d bytes", size)

		whole, err := proto.Marshal(b)
		require.NoError(t, err)
		for _, wire := range [][]byte{flat, whole} {
			var pieces mem.BufferSlice
			for rest := wire; len(rest) > 0; {
				n := min(len(rest), 16<<10)
				pieces, rest = append(pieces, mem.SliceBuffer(rest[:n])), rest[n:]
			}
			read.Reset()
			require.NoError(t, c.Unmarshal(pieces, &read))
			require.True(t, proto.Equal(b, &read), "%d bytes", size)
		}
		if size >= largeBatch {
			require.Error(t, c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(flat[:largeBatch])}, &read), "cut off")
		}
	}
}

// Any input is decoded as by protobuf, or refused by both.
func FuzzCodec(f *testing.F) {
	c := newCodec()
	whole, err := proto.Marshal(&peerpb.Batch{Raft: [][]byte{{1}, {2, 3}, {}}, Ping: 9})
	require.NoError(f, err)
	f.Add(whole)
	f.Add(append(whole, whole...))
	f.Fuzz(func(t *testing.T, head []byte) {
		large := protowire.AppendTag(nil, 1, protowire.BytesType)
		large = protowire.AppendBytes(large, make([]byte, largeBatch))
		for _, wire := range [][]byte{slices.Concat(head, large), slices.Concat(large, head)} {
			var want, got peerpb.Batch
			failed := proto.Unmarshal(wire, &want) != nil
			err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(wire)}, &got)
			require.Equal(t, failed, err != nil, "%v", err)
			if !failed {
				require.True(t, proto.Equal(&want, &got))
			}
		}
	})
}

func BenchmarkCodec(b *testing.B) {
	c := newCodec()
	batch := &peerpb.Batch{Raft: [][]byte{make([]byte, 40), make([]byte, 1<<20)}}
	b.ReportAllocs()
	for b.Loop() {
		data, err := c.Marshal(batch)
		if err != nil {
			b.Fatal(err)
		}
		var read peerpb.Batch
		if err := c.Unmarshal(data, &read); err != nil {
			b.Fatal(err)
		}
		data.Free()
	}
}
