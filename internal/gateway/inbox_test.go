package gateway

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// What is written is read, whatever the sizes; the writer waits for room.
func TestInbox(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 0))
	want := make([]byte, 5*inboxBytes)
	for i := range want {
		want[i] = byte(draw.Uint32())
	}
	b := newInbox()
	go func() {
		for rest := want; len(rest) > 0; {
			n, err := b.Write(rest[:min(len(rest), draw.IntN(2*inboxBytes))])
			if err != nil {
				return
			}
			rest = rest[n:]
		}
		b.Close()
	}()
	got, err := io.ReadAll(b)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))

	b = newInbox()
	_, err = b.Write([]byte("abc"))
	require.NoError(t, err)
	b.CloseWithError(errEnded)
	b.Close() // comes too late
	_, err = b.Write([]byte("d"))
	require.ErrorIs(t, err, errEnded)
	got, err = io.ReadAll(iotest.OneByteReader(b))
	require.ErrorIs(t, err, errEnded)
	require.Equal(t, "abc", string(got))

	full, ended := newInbox(), make(chan error)
	go func() { _, err := full.Write(make([]byte, inboxBytes+1)); ended <- err }()
	full.CloseWithError(errEnded)
	require.ErrorIs(t, <-ended, errEnded)
}
