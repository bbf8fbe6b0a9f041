//go:build !race

// One goroutine: there is nothing for the race detector, under which this takes five times as long.

package golden

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/recovery"
)

// The number of partitions can change from level 4 on.
const levelOfResizing = 4

// resizedTo is their number in what the files of this level come to.
const resizedTo = 3

// fillEnding makes a state at the end of a generation of groups.
func (s *state) fillEnding() {
	for i := range 8 {
		s.put(fmt.Sprintf("/p/%d/k", i), "kept", 0)
	}
	s.system(command.Resize, command.AppendResize(nil, resizedTo))
}

// resizingMessages name the generation of the sender's groups, and groups of a later generation.
func resizingMessages() []message {
	return []message{
		{"batch of a generation", &peerpb.Batch{
			Confirm: &peerpb.Confirm{Round: 9, Terms: []uint64{7, 300, 2}, Generation: 3},
			Closed:  []*peerpb.Closed{{Group: 2<<8 | 1, Index: 300, Revision: 1 << 40}},
			Calls:   []*peerpb.Call{{Id: 5, Method: 16, Body: []byte("body"), TimeoutMs: 7000, Generation: 3}},
		}},
		{"first chunk of a snapshot of a generation", &peerpb.Chunk{Header: &peerpb.SnapshotHeader{
			Size: 1 << 33, Positions: []*peerpb.Position{{Group: 2<<8 | 1, Index: 300, Term: 7}}, Generation: 3,
		}}},
	}
}

// What a file at the end of a generation comes to is the same in all releases, since the members of
// a cluster may be of several.
func TestAResizeGoesOn(t *testing.T) {
	each(t, func(t *testing.T, level int, read func(string) []byte) {
		if level < levelOfResizing {
			return
		}
		path := unpack(t, read("file-ending.db.gz"))
		be, err := backend.Open(path, backend.Options{Identity: identity})
		require.NoError(t, err)
		require.NoError(t, recovery.Resize(be))
		require.NoError(t, be.Close())
		require.Equal(t, string(read("file-resized.txt")), dump(t, path))

		s := openGolden(t, unpack(t, read("file-resized.db.gz")))
		require.Len(t, s.stores, resizedTo)
		groups := s.machine.Groups()
		require.Equal(t, []uint32{0, 0, 1}, groups.Born)
		require.EqualValues(t, 1, groups.Generation)
		require.Zero(t, groups.Next)
		for i := range 8 {
			require.Equal(t, "kept", value(s, fmt.Sprintf("/p/%d/k", i)))
		}
		s.put("/p/1/k", "new", 0)
		require.Equal(t, "new", value(s, "/p/1/k"))
		s.flush()
	})
}
