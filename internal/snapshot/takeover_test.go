package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/bootstrap"
	"github.com/stoa-kv/stoa/internal/etcdwal"
)

// The member and the cluster of the log in package etcdwal's testdata.
const (
	theMember  = uint64(0xed6ff169ebb7c738)
	theCluster = 0x0bd150597e07af1d
	usedMember = uint64(0x8e9e05c52164694d) // of used.wal
)

// etcdsDirectory is what `etcdutl snapshot restore` makes, with a log of package etcdwal's
// testdata.
func etcdsDirectory(t *testing.T, log string) (dataDir string) {
	t.Helper()
	dataDir = filepath.Join(t.TempDir(), "data")
	at := filepath.Join(dataDir, "member")
	for _, dir := range []string{"snap", "wal"} {
		require.NoError(t, os.MkdirAll(filepath.Join(at, dir), 0o700))
	}
	content, err := os.ReadFile("../etcdwal/testdata/" + log)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(at, "wal", "0000000000000000-0000000000000000.wal"), content, 0o600))
	file := filepath.Join(t.TempDir(), "file")
	save(t, file)
	db := filepath.Join(at, "snap", "db")
	require.NoError(t, os.Rename(file+".db", db))
	edit(t, db, func(tx *bolt.Tx) error {
		list := tx.Bucket([]byte("members"))
		for i, id := range []uint64{theMember, 0xc0daccd6403d7eb8, 0xfa8554137c233371} {
			m := fmt.Sprintf(`{"id":%d,"peerURLs":["http://127.0.0.1:%d"],"name":"m%d"}`, id, i+1, i+1)
			if err := list.Put(fmt.Appendf(nil, "%x", id), []byte(m)); err != nil {
				return err
			}
		}
		if err := list.Delete([]byte("5")); err != nil {
			return err
		}
		return tx.Bucket([]byte("meta")).Put([]byte("consistent_index"), []byte{0, 0, 0, 0, 0, 0, 0, 3})
	})
	return dataDir
}

func edit(t *testing.T, db string, fn func(tx *bolt.Tx) error) {
	t.Helper()
	b, err := bolt.Open(db, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, b.Update(fn))
	require.NoError(t, b.Close())
}

func take(t *testing.T, dataDir string) error {
	t.Helper()
	return TakeOver(t.Context(), dataDir, "", 3, false, zap.NewNop())
}

func requireTaken(t *testing.T, dataDir string) {
	t.Helper()
	rec := record(t, dataDir)
	require.Equal(t, bootstrap.ID(theMember), rec.Member)
	require.Equal(t, bootstrap.RestoredCluster(theCluster, rec.State), rec.Cluster)
	require.Len(t, rec.Members, 3)
	m := meta(t, dataDir)
	require.Equal(t, uint64(rec.Cluster), m.Identity.Cluster)
	require.Equal(t, theMember, m.Identity.Server)
	require.Equal(t, 3, m.Identity.Partitions)
	require.EqualValues(t, 350, m.Positions[0].Rev)
	require.Len(t, m.Members, 3)
	require.NoDirExists(t, filepath.Join(dataDir, "member", "wal"), "etcd's")
	require.DirExists(t, filepath.Join(dataDir, retired, "wal"))
	require.NoError(t, Refuse(dataDir))
	require.NoError(t, take(t, dataDir), "once")
}

func TestTakeOver(t *testing.T) {
	dataDir := etcdsDirectory(t, "restored.wal")
	require.NoError(t, take(t, dataDir))
	requireTaken(t, dataDir)
}

// A member that etcdutl has restored and one that stoactl has restored from the same file
// are of one cluster, if their flags are those of one cluster.
func TestTakenOverBesideRestored(t *testing.T) {
	dataDir := etcdsDirectory(t, "restored.wal")
	require.NoError(t, take(t, dataDir))
	file := filepath.Join(t.TempDir(), "file")
	save(t, file)
	c := Config{
		Name: "a", InitialCluster: "a=http://127.0.0.1:1,b=http://127.0.0.1:2,c=http://127.0.0.1:3", PeerURLs: []string{"http://127.0.0.1:1"},
		Token: "golden", DataDir: filepath.Join(t.TempDir(), "data"), Partitions: 3,
	}
	r, err := Restore(t.Context(), file, c)
	require.NoError(t, err)
	rec := record(t, dataDir)
	require.Equal(t, rec.Cluster, r.Cluster)
	require.Equal(t, rec.Member, r.Member)
}

func TestNothingToTakeOver(t *testing.T) {
	dir := t.TempDir()
	for _, dataDir := range []string{dir, filepath.Join(dir, "none")} {
		require.NoError(t, take(t, dataDir))
		requireNothing(t, dataDir)
	}
}

// use makes the log that of a server that has run, and returns its last index.
func use(t *testing.T, dataDir string) byte {
	t.Helper()
	content, err := os.ReadFile("../etcdwal/testdata/used.wal")
	require.NoError(t, err)
	wal := filepath.Join(dataDir, "member", "wal")
	require.NoError(t, os.WriteFile(filepath.Join(wal, "0000000000000000-0000000000000000.wal"), content, 0o600))
	log, err := etcdwal.Read(wal)
	require.NoError(t, err)
	require.Less(t, log.Last, uint64(256))
	return byte(log.Last)
}

func setIndex(t *testing.T, db string, index byte) {
	t.Helper()
	edit(t, db, func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("consistent_index"), []byte{0, 0, 0, 0, 0, 0, 0, index})
	})
}

// Every other directory of etcd's is left as it is.
func TestNotTakenOver(t *testing.T) {
	for _, c := range []struct {
		name    string
		convert bool
		says    string
		spoil   func(t *testing.T, dataDir, db string) (walDir string)
	}{
		{"a log with more entries", false, "--convert-etcd-data", func(t *testing.T, dataDir, db string) string {
			setIndex(t, db, use(t, dataDir))
			return ""
		}},
		{"a state that lacks an entry", true, "stop it with SIGTERM", func(t *testing.T, dataDir, db string) string {
			setIndex(t, db, use(t, dataDir)-1)
			return ""
		}},
		{"a state ahead of the log", false, "ends at index 3, and its state file has the entries up to 4", func(t *testing.T, _, db string) string {
			setIndex(t, db, 4)
			return ""
		}},
		{"a damaged log", true, "damaged", func(t *testing.T, dataDir, db string) string {
			file := filepath.Join(dataDir, "member", "wal", "0000000000000000-0000000000000000.wal")
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			b[100] ^= 1
			require.NoError(t, os.WriteFile(file, b, 0o600))
			return ""
		}},
		{"a learner", true, "learner", func(t *testing.T, _, db string) string {
			edit(t, db, func(tx *bolt.Tx) error {
				m := fmt.Sprintf(`{"id":%d,"peerURLs":["http://127.0.0.1:9"],"isLearner":true}`, 9)
				return tx.Bucket([]byte("members")).Put([]byte("9"), []byte(m))
			})
			return ""
		}},
		{"a log of a member that isn't in the list", false, "lacks the one of its log", func(t *testing.T, dataDir, db string) string {
			edit(t, db, func(tx *bolt.Tx) error { return tx.Bucket([]byte("members")).Delete(fmt.Appendf(nil, "%x", theMember)) })
			return ""
		}},
		{"a log elsewhere", true, "--wal-dir", func(t *testing.T, dataDir, _ string) string {
			walDir := filepath.Join(t.TempDir(), "wal")
			require.NoError(t, os.Rename(filepath.Join(dataDir, "member", "wal"), walDir))
			return walDir
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dataDir := etcdsDirectory(t, "restored.wal")
			db := filepath.Join(dataDir, "member", "snap", "db")
			walDir := c.spoil(t, dataDir, db)
			before, err := os.ReadFile(db)
			require.NoError(t, err)
			err = TakeOver(t.Context(), dataDir, walDir, 3, c.convert, zap.NewNop())
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "\n")
			after, err := os.ReadFile(db)
			require.NoError(t, err)
			require.Equal(t, before, after)
			require.NoDirExists(t, filepath.Join(dataDir, unfinished))
			require.NoDirExists(t, filepath.Join(dataDir, retired))
		})
	}
}

// A directory that a server has run on is converted if its state has all of its log.
func TestConvert(t *testing.T) {
	dataDir := etcdsDirectory(t, "restored.wal")
	db := filepath.Join(dataDir, "member", "snap", "db")
	setIndex(t, db, use(t, dataDir))
	edit(t, db, func(tx *bolt.Tx) error {
		m := fmt.Sprintf(`{"id":%d,"peerURLs":["http://127.0.0.1:9"],"name":"used"}`, usedMember)
		return tx.Bucket([]byte("members")).Put(fmt.Appendf(nil, "%x", usedMember), []byte(m))
	})
	require.NoError(t, TakeOver(t.Context(), dataDir, "", 3, true, zap.NewNop()))
	rec := record(t, dataDir)
	require.Equal(t, bootstrap.ID(usedMember), rec.Member)
	require.Len(t, rec.Members, 4)
	require.EqualValues(t, 350, meta(t, dataDir).Positions[0].Rev)
	require.DirExists(t, filepath.Join(dataDir, retired, "wal"))
	require.NoError(t, TakeOver(t.Context(), dataDir, "", 3, true, zap.NewNop()), "the flag stays")
}

func TestTakeOverKeepsAnEarlierDirectory(t *testing.T) {
	dataDir := etcdsDirectory(t, "restored.wal")
	require.NoError(t, os.Mkdir(filepath.Join(dataDir, retired), 0o700))
	require.ErrorContains(t, take(t, dataDir), "move it away")
}
