package recovery

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/membership"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/raftlog"
	"github.com/stoa-kv/stoa/internal/store"
)

// A file at the end of a generation becomes one of the next, whatever the numbers are; others
// stay as they are.
func TestResizeMakesTheNextGeneration(t *testing.T) {
	for _, n := range [][2]int{{3, 5}, {3, 1}, {1, 2}} {
		from, to := n[0], n[1]
		b := backend.NewMem(backend.Identity{Cluster: 7, Server: 1, Partitions: from})
		members := Membership{List: membership.OfIDs(1, 2)}
		for range from {
			members.Configs = append(members.Configs, membership.Initial(members.List))
		}
		epochs := make([]command.Epochs, from)
		epochs[0].Term = 4
		cut := &backend.Cut{}
		for p := range from {
			cut.Partitions = append(cut.Partitions, store.Cut{Index: 10 + uint64(p), Term: 3, Rev: 50 + int64(p), Compacted: -1, Swept: -1})
		}
		members.Cut(&cut.System)
		CutEpochs(&cut.System, nil, epochs)
		for p := range from {
			cut.System.Blobs[fmt.Sprintf("session/%03d/0000000000000001", p)] = []byte{1, 0, 0, 0}
		}
		require.NoError(t, b.Flush(cut))
		require.NoError(t, Resize(b))
		require.Equal(t, from, b.Identity().Partitions, "the generation goes on")

		first := membership.FirstGroups(from)
		end := backend.Cut{Partitions: cut.Partitions, System: backend.System{Blobs: PlacementBlob(placement.New(to))}}
		CutGroups(&end.System, first, first.Ending(to))
		require.NoError(t, b.Flush(&end))
		for range 2 { // once is enough
			require.NoError(t, Resize(b))
			meta, err := b.Meta()
			require.NoError(t, err)
			require.Equal(t, to, meta.Identity.Partitions)
			for p, at := range meta.Positions {
				want := backend.Position{Index: raftlog.Bootstrap.Index, Term: raftlog.Bootstrap.Term}
				if p < from {
					want.Index, want.Term = 10+uint64(p), 3
				}
				want.Rev = 50 + int64(from) - 1
				require.Equal(t, want, at)
			}
			groups, err := ReadGroups(&meta)
			require.NoError(t, err)
			require.Equal(t, first.Ending(to).Following(), groups)
			now, err := ReadMembership(&meta, membership.OfIDs(9))
			require.NoError(t, err)
			require.Len(t, now.Configs, to)
			require.True(t, membership.Settled(now.List, now.Configs))
			back, err := ReadEpochs(&meta)
			require.NoError(t, err)
			require.Len(t, back, to)
			require.EqualValues(t, 4, back[0].Term)
			m, err := Placement(&meta)
			require.NoError(t, err)
			require.Equal(t, to, m.Partitions())
			sessions := 0
			for name := range meta.Blobs {
				if strings.HasPrefix(name, "session/") {
					sessions++
				}
			}
			require.Equal(t, to, sessions, "a session is in every partition")
		}
	}
}
