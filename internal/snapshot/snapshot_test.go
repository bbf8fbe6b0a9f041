package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/bootstrap"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/recovery"
	"github.com/stoa-kv/stoa/internal/store"
)

const lastRevision = 301

// save makes a snapshot file of a cluster with two partitions. Revisions through 350 have
// been given out.
func save(t *testing.T, path string) {
	t.Helper()
	saveMap(t, path, placement.New(2).WithRules([]placement.Rule{{Key: "/ruled/", Slot: 9}}))
}

// saveMap makes one of a cluster with another partition map.
func saveMap(t *testing.T, path string, m *placement.Map) {
	t.Helper()
	db := path + ".db"
	b, err := backend.Open(path+".server", backend.Options{Identity: backend.Identity{Cluster: 0xc, Server: 0x5, Partitions: m.Partitions()}, NoSync: true, Quota: 1 << 20})
	require.NoError(t, err)
	stores := make([]*store.Store, m.Partitions())
	for p := range stores {
		stores[p] = store.New(b)
	}
	for i := range lastRevision - 1 {
		key := fmt.Appendf(nil, "/d%d/k%d", i%9, i%100)
		stores[m.Partition(key)].Put(store.Revision{Main: int64(i + 2)}, key, fmt.Append(nil, i), 0)
	}
	stores[0].SetRev(350)
	cut := &backend.Cut{System: backend.System{
		Leases:   []backend.Lease{{ID: 7, TTL: 60, Remaining: 20}},
		AlarmsOn: []*etcdserverpb.AlarmMember{{MemberID: 5, Alarm: etcdserverpb.AlarmType_NOSPACE}},
		Members:  []backend.Member{{ID: 5, Name: "old", PeerURLs: []string{"http://old"}}},
		Blobs:    map[string][]byte{"session/000/0000000000000001": {1}},
	}}
	for name, v := range recovery.PlacementBlob(m) {
		cut.System.Blobs[name] = v
	}
	for _, s := range stores {
		cut.Partitions = append(cut.Partitions, s.Cut())
	}
	require.NoError(t, b.Flush(cut))
	snap, err := b.Snapshot()
	require.NoError(t, err)
	var content bytes.Buffer
	_, err = snap.WriteTo(&content)
	require.NoError(t, err)
	require.NoError(t, snap.Close())
	require.NoError(t, b.Close())
	require.NoError(t, os.WriteFile(db, content.Bytes(), 0o600))
	sign(t, db, path)
}

// sign writes a snapshot file of a backend file.
func sign(t *testing.T, db, path string) {
	t.Helper()
	content, err := os.ReadFile(db)
	require.NoError(t, err)
	sum := sha256.Sum256(content)
	require.NoError(t, os.WriteFile(path, append(content, sum[:]...), 0o600))
}

func second(dataDir string) Config {
	return Config{
		Name: "b", InitialCluster: "a=http://127.0.0.1:1,b=http://127.0.0.1:2", PeerURLs: []string{"http://127.0.0.1:2"},
		Token: "t", DataDir: dataDir, Partitions: 3,
	}
}

func meta(t *testing.T, dataDir string) backend.Meta {
	t.Helper()
	b, err := backend.Open(filepath.Join(dataDir, "member", "snap", "db"), backend.Options{})
	require.NoError(t, err)
	defer b.Close()
	m, err := b.Meta()
	require.NoError(t, err)
	return m
}

func record(t *testing.T, dataDir string) bootstrap.Record {
	t.Helper()
	r, err := bootstrap.Open(filepath.Join(dataDir, "member"), nil)
	require.NoError(t, err)
	defer r.Close()
	rec, ok := r.Restored()
	require.True(t, ok)
	return rec
}

func TestRestore(t *testing.T) {
	dir := t.TempDir()
	file, data := filepath.Join(dir, "file"), filepath.Join(dir, "data")
	save(t, file)
	var told int64
	c := second(data)
	c.Progress = func(done, total int64) {
		require.LessOrEqual(t, done, total)
		told = done
	}
	r, err := Restore(t.Context(), file, c)
	require.NoError(t, err)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, info.Size()-32, told)
	require.EqualValues(t, 350, r.Revision, "not lower than what clients have seen")

	m := meta(t, data)
	require.Equal(t, backend.Identity{Cluster: uint64(r.Cluster), Server: uint64(r.Member), Partitions: 3}, m.Identity)
	at := backend.Position{Index: 1, Term: 1, Rev: 350}
	require.Equal(t, []backend.Position{at, at, at}, m.Positions)
	require.Equal(t, []backend.Lease{{ID: 7, TTL: 60, Remaining: 20}}, m.Leases)
	require.Len(t, m.Alarms, 1, "as in etcd")
	require.Len(t, m.Members, 2)
	require.Len(t, m.Blobs, 1)
	placed, err := recovery.Placement(&m)
	require.NoError(t, err)
	require.Equal(t, placement.New(3).Table(), placed.Table())
	require.Empty(t, placed.Rules(), "no extension asks for one")

	rec := record(t, data)
	require.Equal(t, r.Cluster, rec.Cluster)
	require.Equal(t, r.Member, rec.Member)
	require.Equal(t, 3, rec.Partitions)
	require.False(t, rec.Begun)
	require.NoError(t, Refuse(data))

	require.NoDirExists(t, filepath.Join(data, unfinished))
}

// Members of one cluster are those that were restored alike, and no others.
func TestClusterOfARestoredState(t *testing.T) {
	dir := t.TempDir()
	file, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
	save(t, file)
	content, err := os.ReadFile(file + ".db")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(other+".db", content, 0o600))
	db, err := bolt.Open(other+".db", 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error { return tx.Bucket([]byte("lease")).Put([]byte("12345678"), nil) }))
	require.NoError(t, db.Close())
	sign(t, other+".db", other)

	n := 0
	cluster := func(file string, change func(*Config)) bootstrap.ID {
		n++
		c := second(filepath.Join(dir, fmt.Sprint(n)))
		change(&c)
		r, err := Restore(t.Context(), file, c)
		require.NoError(t, err)
		require.Equal(t, r.Cluster, record(t, c.DataDir).Cluster)
		return r.Cluster
	}
	same := cluster(file, func(*Config) {})
	require.Equal(t, same, cluster(file, func(*Config) {}))
	require.Equal(t, same, cluster(file, func(c *Config) { c.Name, c.PeerURLs = "a", []string{"http://127.0.0.1:1"} }))
	require.Equal(t, same, cluster(file+".db", func(c *Config) { c.SkipHashCheck = true }), "the pages are no part of the state")
	for name, change := range map[string]func(*Config){
		"token":      func(c *Config) { c.Token = "other" },
		"partitions": func(c *Config) { c.Partitions = 4 },
		"revision":   func(c *Config) { c.BumpRevision = 1 },
		"members":    func(c *Config) { c.InitialCluster = "b=http://127.0.0.1:2" },
	} {
		require.NotEqual(t, same, cluster(file, change), name)
	}
	require.NotEqual(t, same, cluster(other, func(*Config) {}))
}

func TestBumpRevision(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	save(t, file)
	c := second(filepath.Join(dir, "data"))
	c.BumpRevision = 1000
	r, err := Restore(t.Context(), file, c)
	require.NoError(t, err)
	require.EqualValues(t, 1350, r.Revision)
	m := meta(t, c.DataDir)
	require.EqualValues(t, 1350, m.Compacted)
	require.EqualValues(t, 1350, m.Positions[2].Rev)

	c.DataDir = filepath.Join(dir, "highest")
	c.BumpRevision = command.HighestStart - 350
	r, err = Restore(t.Context(), file, c)
	require.NoError(t, err)
	require.Equal(t, command.HighestStart, r.Revision)
}

// requireNothing wants a place where nothing has been written.
func requireNothing(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if path != dir {
			t.Errorf("%s was written", path)
		}
		if os.IsNotExist(err) {
			return nil
		}
		return err
	}))
}

// A file that was cut anywhere, or in which a bit has flipped anywhere, is refused before
// anything is written.
func TestDamagedFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	file, bad, data := filepath.Join(dir, "file"), filepath.Join(dir, "bad"), filepath.Join(dir, "data")
	save(t, file)
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	try := func(content []byte, what string) {
		t.Helper()
		require.NoError(t, os.WriteFile(bad, content, 0o600))
		_, err := Restore(t.Context(), bad, second(data))
		require.ErrorIs(t, err, ErrDamaged, what)
		require.ErrorContains(t, err, bad, what)
		requireNothing(t, data)
	}
	for n := 0; n < len(whole); n += 509 {
		try(whole[:n], fmt.Sprint("cut at ", n))
	}
	try(whole[:len(whole)-512], "cut by a sector")
	for n := 0; n < len(whole); n += 997 {
		b := bytes.Clone(whole)
		b[n] ^= 1
		try(b, fmt.Sprint("flipped at ", n))
	}
	try(append(bytes.Clone(whole), make([]byte, 512)...), "longer")
	t.Logf("%d files, none restored", len(whole)/509+len(whole)/997+4)

	// Without the comparison of the checksum, the structure is left.
	for _, n := range []int{len(whole) / 2, 4096, 100} {
		require.NoError(t, os.WriteFile(bad, whole[:n], 0o600))
		c := second(data)
		c.SkipHashCheck = true
		_, err := Restore(t.Context(), bad, c)
		require.ErrorIs(t, err, backend.ErrDamaged)
		requireNothing(t, data)
	}
}

func TestRefusedFiles(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	change := func(t *testing.T, fn func(tx *bolt.Tx) error) string {
		file := filepath.Join(t.TempDir(), "file")
		save(t, file)
		db, err := bolt.Open(file+".db", 0o600, nil)
		require.NoError(t, err)
		require.NoError(t, db.Update(fn))
		require.NoError(t, db.Close())
		sign(t, file+".db", file)
		return file
	}
	for name, c := range map[string]struct {
		change func(tx *bolt.Tx) error
		says   string
	}{
		"a user":           {func(tx *bolt.Tx) error { return tx.Bucket([]byte("authUsers")).Put([]byte("u"), []byte("x")) }, "users and roles: file is damaged"},
		"something else":   {func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte("key")) }, "bucket \"key\" is missing"},
		"a key's revision": {func(tx *bolt.Tx) error { return tx.Bucket([]byte("key")).Put([]byte("k"), []byte("v")) }, "is not a revision"},
		"a value":          {func(tx *bolt.Tx) error { return tx.Bucket([]byte("key")).Put([]byte("01234567_01234567"), []byte("v")) }, "damaged"},
		"an extension": {func(tx *bolt.Tx) error {
			return tx.Bucket([]byte("key")).Put([]byte("\x00\x00\x00\x00\x00\x00\x10\x00_\x00\x00\x00\x00\x00\x00\x00\x00"),
				[]byte("\x0a\x05/em/x\x10\x80\x20\x18\x80\x20\x20\x01\x2a\x04oops"))
		}, "language of extensions"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Restore(t.Context(), change(t, c.change), second(data))
			require.ErrorContains(t, err, c.says)
			requireNothing(t, data)
		})
	}
	t.Run("no file", func(t *testing.T) {
		_, err := Restore(t.Context(), filepath.Join(dir, "none"), second(data))
		require.ErrorIs(t, err, os.ErrNotExist)
		_, err = Restore(t.Context(), dir, second(data))
		require.ErrorContains(t, err, "is not a file")
		requireNothing(t, data)
	})
}

func TestRefusedFlags(t *testing.T) {
	dir := t.TempDir()
	file, full := filepath.Join(dir, "file"), filepath.Join(dir, "full")
	save(t, file)
	require.NoError(t, os.MkdirAll(filepath.Join(full, "member"), 0o700))
	for says, change := range map[string]func(*Config){
		"--partitions=17":                      func(c *Config) { c.Partitions = 17 },
		"local name":                           func(c *Config) { c.Name = "other" },
		"missing from":                         func(c *Config) { c.PeerURLs = []string{"http://127.0.0.1:3"} },
		"--initial-cluster":                    func(c *Config) { c.InitialCluster = "nonsense" },
		"--data-dir " + full + " is not empty": func(c *Config) { c.DataDir = full },
		"--wal-dir " + full + " is not empty":  func(c *Config) { c.WALDir = full },
		"can't go back":                        func(c *Config) { c.BumpRevision = -1 },
		"a cluster can begin":                  func(c *Config) { c.BumpRevision = command.HighestStart },
		"increased by 9223372036854775807":     func(c *Config) { c.BumpRevision = math.MaxInt64 },
	} {
		c := second(filepath.Join(dir, "data"))
		change(&c)
		_, err := Restore(t.Context(), file, c)
		require.ErrorContains(t, err, says)
		requireNothing(t, filepath.Join(dir, "data"))
	}
	// An empty directory is as good as none: it may be where a disk is mounted.
	c := second(filepath.Join(dir, "empty"))
	require.NoError(t, os.Mkdir(c.DataDir, 0o700))
	c.WALDir = filepath.Join(dir, "wal")
	_, err := Restore(t.Context(), file, c)
	require.NoError(t, err)
	_, err = Restore(t.Context(), file, c)
	require.ErrorContains(t, err, "is not empty")
}

// A file that changes between the check and the copy is not restored, and what was copied
// is removed.
func TestFileChangesWhileItIsRead(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	save(t, file)
	src, err := openSource(t.Context(), file, false)
	require.NoError(t, err)
	defer src.close()
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("changed"), 9000)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.ErrorContains(t, src.copyTo(t.Context(), filepath.Join(dir, "copy"), nil), "was changed while it was read")
}

func TestInterruptedByTheOperator(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	save(t, file)
	ctx, cancel := context.WithCancel(t.Context())
	c := second(filepath.Join(dir, "data"))
	c.Progress = func(int64, int64) { cancel() }
	_, err := Restore(ctx, file, c)
	require.ErrorIs(t, err, context.Canceled)
	requireNothing(t, c.DataDir)
}
