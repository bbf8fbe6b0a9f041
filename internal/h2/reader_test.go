package h2

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// A reader's buffer grows with what comes, stays as large while that much goes on to come, and is small behind it.
func TestReadBuffer(t *testing.T) {
	in, out := io.Pipe()
	r := reader{from: in}
	frames := func(n, size int) {
		b := bytes.Repeat(append(appendHeader(nil, size, 0x42, 0, 0), make([]byte, size)...), n)
		go func() {
			_, _ = out.Write(b)
		}()
		for range n {
			f, err := r.next()
			require.NoError(t, err)
			require.Len(t, f.payload, size)
		}
	}
	frames(1, 100)
	require.Len(t, r.buf, smallBuffer)
	frames(20, maxFrame)
	require.Len(t, r.buf, largeBuffer)
	large := &r.buf[0]
	for range 5 {
		r.slim()
		frames(4, maxFrame)
		require.Same(t, large, &r.buf[0], "one that is busy keeps it")
	}
	r.slim()
	frames(3, 100)
	r.slim()
	require.LessOrEqual(t, len(r.buf), smallBuffer)

	go func() { _, _ = out.Write(appendHeader(nil, maxFrame, 0x42, 0, 0)) }()
	require.NoError(t, r.need(frameHeader))
	r.makeRoom(frameHeader + maxFrame)
	require.Len(t, r.buf, smallBuffer, "what is announced takes nothing")
	go func() { _, _ = out.Write(bytes.Repeat([]byte{1}, maxFrame)) }()
	f, err := r.next()
	require.NoError(t, err)
	require.Equal(t, bytes.Repeat([]byte{1}, maxFrame), f.payload)
}
