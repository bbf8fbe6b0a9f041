package backend_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/stoa-kv/stoa/internal/backend"
)

// A file that was made on a machine with pages of another size (a snapshot from there, say) is read, written,
// defragmented and read again, and a backup of it likewise.
func TestPagesOfAnotherSize(t *testing.T) {
	for _, size := range []int{1 << 10, 8 << 10, 16 << 10, 64 << 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			dir := t.TempDir()
			be := open(t, filepath.Join(dir, "own"))
			s := newServer(be)
			s.fill(t, 500)
			want := dump(t, be)
			require.NoError(t, be.Close())

			path := filepath.Join(dir, "db")
			from, err := bolt.Open(filepath.Join(dir, "own"), 0o600, &bolt.Options{ReadOnly: true})
			require.NoError(t, err)
			to, err := bolt.Open(path, 0o600, &bolt.Options{PageSize: size})
			require.NoError(t, err)
			require.NoError(t, bolt.Compact(to, from, 0))
			require.NoError(t, to.Close())
			require.NoError(t, from.Close())

			be, err = backend.Open(path, backend.Options{Identity: identity})
			require.NoError(t, err)
			require.Equal(t, want, dump(t, be))
			more := &server{be: be, stores: stores(2, be), rev: s.rev}
			for i := range 300 {
				more.put(fmt.Sprintf("key-%05d", i), "more")
			}
			flush(t, be, more.stores)
			want = dump(t, be)
			require.NoError(t, be.Defragment())
			require.Equal(t, want, dump(t, be))
			backup, err := os.Create(filepath.Join(dir, "backup"))
			require.NoError(t, err)
			snapshot, err := be.Snapshot()
			require.NoError(t, err)
			_, err = snapshot.WriteTo(backup)
			require.NoError(t, err)
			require.NoError(t, snapshot.Close())
			require.NoError(t, backup.Close())
			require.NoError(t, be.Close())
			for _, again := range []string{path, backup.Name()} {
				be = open(t, again)
				require.Equal(t, want, dump(t, be))
			}
		})
	}
}
