package h2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
)

// FuzzFrames reads frames as x/net does, in whatever pieces they come.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{0, 0, 3, 0, 1, 0, 0, 0, 1, 1, 2, 3, 0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, false)
	f.Add([]byte{0, 64, 1, 0x77, 0, 128, 0, 0, 1}, true)
	f.Add(append([]byte{0, 64, 0, 0x77, 0, 128, 0, 0, 1}, make([]byte, 1<<14)...), true)
	f.Fuzz(func(t *testing.T, b []byte, oneByOne bool) {
		for i := 3; i < len(b); i += frameHeader + int(binary.BigEndian.Uint32(append([]byte{0}, b[i-3:i]...))) {
			b[i] |= 0x40 // a type that x/net leaves as it is
		}
		own := reader{from: bytes.NewReader(b)}
		if oneByOne {
			own.from = iotest.OneByteReader(own.from)
		}
		theirs := http2.NewFramer(io.Discard, bytes.NewReader(b))
		theirs.SetMaxReadFrameSize(maxFrame)
		for {
			got, err := own.next()
			want, expected := theirs.ReadFrame()
			if expected != nil {
				require.Error(t, err)
				var end *connError
				require.Equal(t, errors.Is(expected, http2.ErrFrameTooLarge), errors.As(err, &end))
				return
			}
			require.NoError(t, err)
			h := want.Header()
			require.Equal(t, uint8(h.Type), uint8(got.typ))
			require.Equal(t, uint8(h.Flags), got.flags)
			require.Equal(t, h.StreamID, got.stream)
			require.True(t, bytes.Equal(want.(*http2.UnknownFrame).Payload(), got.payload))
		}
	})
}

// FuzzMessages cuts a stream's bytes into messages, in whatever pieces they come, as they are cut
// all at once.
func FuzzMessages(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 2, 1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 9, 1}, []byte{1, 4, 3})
	f.Add([]byte{0, 0, 0, 1, 0, 1, 2}, []byte{})
	f.Add([]byte{2, 0, 0, 0, 0, 0}, []byte{0, 7})
	o := NewServer(Options{MaxRecvMessage: 100}).o
	f.Fuzz(func(t *testing.T, b, cuts []byte) {
		var want [][]byte
		bad, rest := false, b
		for len(rest) >= 5 {
			n := uint64(binary.BigEndian.Uint32(rest[1:]))
			if bad = n > 100 || rest[0] > 1; bad || uint64(len(rest)) < 5+n {
				break
			}
			want, rest = append(want, rest[:5+n]), rest[5+n:]
		}
		var in incoming
		var err error
		var free, held int64
		all := b
		for i := 0; err == nil && len(b) > 0; i++ {
			n := len(b)
			if i < len(cuts) {
				n = min(n, int(cuts[i]))
			}
			var more int64
			more, err = in.add(b[:n], &o)
			free += more
			b = b[n:]
		}
		require.Equal(t, bad, err != nil)
		require.Len(t, in.ready, len(want))
		for _, w := range want {
			m, _ := in.take()
			require.Equal(t, w[0] == 1, m.compressed)
			require.True(t, bytes.Equal(w[5:], m.data.ReadOnlyData()))
			held += m.held
		}
		if !bad {
			require.EqualValues(t, len(all), free+held, "each byte counts for the window, once")
			require.Equal(t, len(rest) > 0, in.have > 0)
		}
	})
}
