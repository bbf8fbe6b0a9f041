package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/store"
)

func FuzzDecodeWindow(f *testing.F) {
	f.Add(windowOf{3, store.WindowSum{End: 1 << 40, Diff: 7}}.appendTo(nil))
	f.Add([]byte{0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, rest, ok := decodeWindow(b)
		if !ok {
			return
		}
		again, none, ok := decodeWindow(c.appendTo(nil))
		require.True(t, ok)
		require.Empty(t, none)
		require.Equal(t, c, again)
		require.Less(t, len(rest), len(b))
	})
}
