package watch

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"pgregory.net/rapid"
)

// TestIndex compares the index with a scan of all watchers.
func TestIndex(t *testing.T) {
	key := rapid.StringOfN(rapid.RuneFrom([]rune("abc")), 0, 3, -1)
	rapid.Check(t, func(t *rapid.T) {
		x := newIndex()
		var in []*watcher
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				r := &pb.WatchCreateRequest{Key: []byte(key.Draw(t, "key"))}
				switch rapid.IntRange(0, 2).Draw(t, "form") {
				case 1:
					r.RangeEnd = []byte{0}
				case 2:
					r.RangeEnd = []byte(key.Draw(t, "end"))
				}
				w := newWatcher(nil, r)
				w.id = int64(len(in))
				x.add(w)
				in = append(in, w)
			},
			"remove": func(t *rapid.T) {
				if len(in) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(in)-1).Draw(t, "which")
				x.remove(in[i])
				in = slices.Delete(in, i, i+1)
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(in), x.len())
				k := []byte(key.Draw(t, "stab"))
				var want []*watcher
				for _, w := range in {
					if w.covers(k) {
						want = append(want, w)
					}
				}
				require.ElementsMatch(t, want, x.match(nil, k))
			},
		})
		for _, w := range in {
			x.remove(w)
		}
		require.Nil(t, x.ranges.root)
		require.Empty(t, x.keys)
	})
}
