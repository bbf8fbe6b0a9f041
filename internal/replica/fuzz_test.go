package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/placement"
)

// FuzzWire decodes the bodies of calls and replies between servers: whoever reaches an open peer
// port can send them.
func FuzzWire(f *testing.F) {
	all := placement.Of(0) | placement.Of(1) | placement.Of(2)
	f.Add(encodeWrite(&Write{Command: command.Command{Kind: command.Put, User: 300, Body: []byte("b")}, Parts: placement.Of(1), Home: 1, Session: true}))
	f.Add(encodeQuestion(all, []uint64{7, 1 << 40}))
	f.Add(encodePoints([]Closed{{Group: 0, Index: 5, Revision: 9}, {Group: 2, Index: 1, Revision: 2}}))
	out, err := encodeOutcome(Outcome{Group: 1, Index: 9})
	require.NoError(f, err)
	f.Add(out)
	f.Fuzz(func(t *testing.T, b []byte) {
		if w, err := decodeWrite(b, all); err == nil {
			require.Zero(t, w.Parts&^all)
			again, err := decodeWrite(encodeWrite(w), all)
			require.NoError(t, err)
			require.Equal(t, w, again)
		}
		if parts, _, err := decodeQuestion(b, all); err == nil {
			require.Zero(t, parts&^all)
		}
		if points, err := decodePoints(b, all); err == nil {
			require.Len(t, points, all.Len())
		}
		for _, k := range []command.Kind{command.Put, command.Range, command.Txn, command.Auth, command.Kind(200)} {
			if out, err := decodeOutcome(k, b); err == nil {
				require.LessOrEqual(t, uint(out.Group), uint(noneOfTheSender))
			}
		}
	})
}
