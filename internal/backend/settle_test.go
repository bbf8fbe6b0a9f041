package backend

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/stoa-kv/stoa/internal/vfs"
)

// states returns the bytes of a file after two transactions in a row.
func states(t *testing.T) (before, after []byte) {
	path := filepath.Join(t.TempDir(), "db")
	for i := range 2 {
		db, err := bolt.Open(path, 0o600, &bolt.Options{PageSize: 4096})
		require.NoError(t, err)
		require.NoError(t, db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			require.NoError(t, err)
			return b.Put([]byte("k"), []byte{byte(i)})
		}))
		require.NoError(t, db.Close())
		before, after = after, nil
		after, err = os.ReadFile(path)
		require.NoError(t, err)
	}
	return before, after
}

// A state that a server found when it started is there after a power failure, also if its
// header had not reached the disk: the process was killed before the sync, or that failed.
func TestAShownStateIsDurable(t *testing.T) {
	before, after := states(t)
	newest := func(f vfs.File) uint64 {
		c := checker{file: f}
		m, err := c.newestMeta()
		require.NoError(t, err)
		return m.txid
	}
	for name, sync := range map[string]func(m *vfs.Mem, f vfs.File){
		"killed before the sync": func(*vfs.Mem, vfs.File) {},
		"after a failed sync": func(m *vfs.Mem, f vfs.File) {
			m.Inject(func(op vfs.Op, _ string) error {
				if op == vfs.OpSync {
					return errors.New("input/output error")
				}
				return nil
			})
			require.Error(t, f.Sync())
			m.Inject(nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(40) {
				m := vfs.NewMem()
				require.NoError(t, m.MkdirAll("/d"))
				f, err := m.Create("/d/db")
				require.NoError(t, err)
				require.NoError(t, m.SyncDir("/d"))
				_, err = f.WriteAt(before, 0)
				require.NoError(t, err)
				was := newest(f)
				_, err = f.WriteAt(after[2*4096:], 2*4096)
				require.NoError(t, err)
				require.NoError(t, f.Sync()) // the pages
				_, err = f.WriteAt(after[:2*4096], 0)
				require.NoError(t, err)
				sync(m, f)

				m = m.Restart()
				f, err = m.Open("/d/db")
				require.NoError(t, err)
				shown := newest(f)
				require.Greater(t, shown, was)
				require.NoError(t, settle(f))
				f, err = m.Crash(rand.New(rand.NewPCG(seed, 1))).Open("/d/db")
				require.NoError(t, err)
				require.Equal(t, shown, newest(f))
			}
		})
	}
}
