package protofield

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

func TestAll(t *testing.T) {
	var b []byte
	b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), 300)
	b = protowire.AppendBytes(protowire.AppendTag(b, 1000, protowire.BytesType), []byte("text"))
	b = protowire.AppendFixed32(protowire.AppendTag(b, 3, protowire.Fixed32Type), 7)
	b = protowire.AppendBytes(protowire.AppendTag(b, 4, protowire.BytesType), nil)
	var fields []Field
	for f, err := range All(b) {
		require.NoError(t, err)
		fields = append(fields, f)
	}
	require.Equal(t, []Field{
		{Number: 1, Type: protowire.VarintType, Whole: b[:3], Varint: 300},
		{Number: 1000, Type: protowire.BytesType, Whole: b[3:10], Bytes: []byte("text")},
		{Number: 3, Type: protowire.Fixed32Type, Whole: b[10:15]},
		{Number: 4, Type: protowire.BytesType, Whole: b[15:17], Bytes: []byte{}},
	}, fields)
	for f := range All(b) {
		require.EqualValues(t, 1, f.Number)
		break
	}
}

// FuzzAll: whatever it is given, the fields that come out are all of its bytes in their order,
// up to where protowire can't read on either.
func TestFind(t *testing.T) {
	var m []byte
	m = protowire.AppendVarint(protowire.AppendTag(m, 3, protowire.VarintType), 7)
	m = protowire.AppendString(protowire.AppendTag(m, 3, protowire.BytesType), "a")
	m = protowire.AppendString(protowire.AppendTag(m, 3, protowire.BytesType), "b")
	f, ok := Find(m, 3, protowire.BytesType)
	require.True(t, ok)
	require.Equal(t, "a", string(f.Bytes))
	f, ok = Find(append(m, 0xff), 3, protowire.VarintType)
	require.True(t, ok, "before what can't be read")
	require.EqualValues(t, 7, f.Varint)
	f, ok = Find(append(m, 0xff), 4, protowire.VarintType)
	require.False(t, ok)
	require.Zero(t, f)
}

func FuzzAll(f *testing.F) {
	f.Add([]byte{0x08, 0x96, 0x01, 0x12, 0x01, 'a'})
	f.Add([]byte{0x12, 0x05, 'a'})
	f.Add([]byte{0x0b, 0x08, 0x01, 0x0c})
	f.Fuzz(func(t *testing.T, b []byte) {
		var joined []byte
		var failed error
		for f, err := range All(b) {
			require.NoError(t, failed, "nothing after an error")
			if failed = err; err == nil {
				require.Equal(t, len(f.Whole), cap(f.Whole))
				joined = append(joined, f.Whole...)
			}
		}
		require.True(t, bytes.HasPrefix(b, joined))
		rest := b[len(joined):]
		if _, _, n := protowire.ConsumeField(rest); len(rest) > 0 {
			require.Negative(t, n)
			require.Equal(t, protowire.ParseError(n), failed)
		} else {
			require.NoError(t, failed)
		}
	})
}
