package backend_test

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/store"
)

const page = 16 << 10 // of the files that are written here

// sample returns the bytes of a file with every kind of page.
func sample(t testing.TB, keys int) []byte {
	path := filepath.Join(t.TempDir(), "db")
	s := newServer(open(t, path))
	s.fill(t, keys)
	s.put("large", string(make([]byte, 3*page)))
	flush(t, s.be, s.stores)
	require.NoError(t, s.be.Close())
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	return raw[:pages(raw)*page]
}

// newest is the offset of the newer header; pages the number it gives.
func newest(raw []byte) int {
	if binary.LittleEndian.Uint64(raw[16+48:]) > binary.LittleEndian.Uint64(raw[page+16+48:]) {
		return 0
	}
	return page
}

func pages(raw []byte) int { return int(binary.LittleEndian.Uint64(raw[newest(raw)+16+40:])) }

// use opens a file and reads all of it. It must fail or succeed, never panic.
func use(t testing.TB, raw []byte) (string, error) {
	path := filepath.Join(t.TempDir(), "db")
	require.NoError(t, os.WriteFile(path, raw, 0o600))
	be, err := backend.Open(path, backend.Options{NoSync: true})
	if err != nil {
		require.ErrorContains(t, err, path)
		return "", err
	}
	defer be.Close()
	s := newServer(be)
	err = be.Load(s.stores, benchRoute(2), nil)
	if err != nil {
		require.ErrorContains(t, err, path)
		return "", err
	}
	all := ""
	err = be.Scan(0, backend.Current, func(rev store.Revision, kv kvwire.KeyValue, tombstone bool) bool {
		all += fmt.Sprintln(rev, kv, tombstone)
		return true
	})
	return all, err
}

func TestTruncatedFile(t *testing.T) {
	raw := sample(t, 2000)
	want, err := use(t, raw)
	require.NoError(t, err)
	require.NotEmpty(t, want)
	for size := 1; size < len(raw); size += 1 + len(raw)/97 {
		_, err := use(t, raw[:size])
		require.ErrorIs(t, err, backend.ErrDamaged, "cut at %d of %d", size, len(raw))
		require.ErrorContains(t, err, "offset")
	}
	// A crash of bbolt itself could leave an empty file; ours is renamed into
	// place, so an empty one is damaged too.
	_, err = use(t, nil)
	require.ErrorIs(t, err, backend.ErrDamaged)
}

// A record that doesn't belong to its revision is damage, not an answer.
func TestDamagedRecord(t *testing.T) {
	for name, record := range map[string][]byte{
		"no key-value":       []byte("garbage"),
		"another revision's": kvwire.Make([]byte("key"), nil, kvwire.Fields{CreateRevision: 2, ModRevision: 4, Version: 3}).Wire(),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "db")
			s := newServer(open(t, path))
			s.put("key", "value")
			rev := s.rev
			flush(t, s.be, s.stores)
			kv, err := s.be.Get(store.Revision{Main: rev})
			require.NoError(t, err)
			require.Equal(t, "key", string(kv.Key()))
			require.NoError(t, s.be.Close())

			db, err := bolt.Open(path, 0o600, nil)
			require.NoError(t, err)
			require.NoError(t, db.Update(func(tx *bolt.Tx) error {
				b := tx.Bucket([]byte("key"))
				k, _ := b.Cursor().Last()
				return b.Put(bytes.Clone(k), record)
			}))
			require.NoError(t, db.Close())
			_, err = open(t, path).Get(store.Revision{Main: rev})
			require.ErrorIs(t, err, backend.ErrDamaged)
			require.ErrorContains(t, err, fmt.Sprintf("read revision %d.0: %s: file is damaged: ", rev, path))
		})
	}
}

// A crash in the middle of a flush: pages of the new state are there, its
// header is not, or is torn.
func TestTornHeader(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "db")
	s := newServer(open(t, path))
	s.fill(t, 500)
	want := dump(t, s.be)
	s.put("not acknowledged", "by a finished flush")
	flush(t, s.be, s.stores)
	require.NoError(t, s.be.Close())
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	raw[newest(raw)+16+30] ^= 0x40
	require.NoError(t, os.WriteFile(path, raw, 0o600))
	require.Equal(t, want, dump(t, open(t, path)))
}

func TestBrokenPages(t *testing.T) {
	raw := sample(t, 600)
	refused := 0
	for id := 2; id < pages(raw); id++ {
		bad := append([]byte{}, raw...)
		for i := range page {
			bad[id*page+i] ^= 0xff
		}
		if _, err := use(t, bad); err != nil {
			require.ErrorIs(t, err, backend.ErrDamaged)
			require.ErrorContains(t, err, fmt.Sprint("offset ", id*page))
			refused++
		}
	}
	t.Logf("%d pages, %d files refused", pages(raw)-2, refused)
	require.Greater(t, refused, pages(raw)/4, "free pages may be anything, but few are free")
}

var flips = flag.Int("flips", 600, "damaged files of TestNoFlippedBitReachesAKey, and a fifth of them of TestFlippedBits")

// Bits that flip in values can't be seen in files of the first levels; anywhere else they
// are found, and the process never crashes.
func TestFlippedBits(t *testing.T) {
	raw := sample(t, 300)
	rng := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for range *flips / 5 {
		bad := append([]byte{}, raw...)
		for range 1 + rng.IntN(3) {
			at := rng.IntN(len(bad))
			if rng.IntN(2) == 0 { // the structure is at the beginning of a page
				at = at/page*page + rng.IntN(256)
			}
			bad[at] ^= 1 << rng.IntN(8)
		}
		if _, err := use(t, bad); err != nil { // one of two good outcomes
			refused++
		}
	}
	t.Logf("%d files, %d refused", *flips/5, refused)
}

const killEnv = "STOA_TEST_KILL_PATH"

// TestKill kills a process that flushes as fast as it can, over and over, and
// checks that the file holds a state of both partitions at one cut.
func TestKill(t *testing.T) {
	if path := os.Getenv(killEnv); path != "" {
		flushForever(t, path)
	}
	path := filepath.Join(t.TempDir(), "db")
	require.NoError(t, open(t, path).Close())
	last := uint64(0)
	for round := range 8 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKill$")
		cmd.Env = append(os.Environ(), killEnv+"="+path)
		require.NoError(t, cmd.Start())
		time.Sleep(time.Duration(60+40*round) * time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		cmd.Wait() //nolint:errcheck // it was killed

		be := open(t, path)
		s := newServer(be)
		require.NoError(t, be.Load(s.stores, benchRoute(2), nil))
		m, err := be.Meta()
		require.NoError(t, err)
		require.Equal(t, m.Positions[0].Index, m.Positions[1].Index)
		at := m.Positions[0].Index
		require.GreaterOrEqual(t, at, last)
		last = at
		for _, key := range []string{"p0", "p1"} {
			if kv := s.of(key).Get([]byte(key)); at > 0 {
				require.Equal(t, fmt.Sprint(at), string(kv.Value()))
			}
		}
		require.NoError(t, be.Close())
	}
	require.Positive(t, last)
}

func flushForever(t *testing.T, path string) {
	be, err := backend.Open(path, backend.Options{})
	require.NoError(t, err)
	s := newServer(be)
	require.NoError(t, be.Load(s.stores, benchRoute(2), nil))
	s.rev = max(s.stores[0].Rev(), s.stores[1].Rev())
	for {
		index, _ := s.stores[0].Applied()
		for _, st := range s.stores {
			st.SetApplied(index+1, 1)
		}
		s.put("p0", fmt.Sprint(index+1))
		s.put("p1", fmt.Sprint(index+1))
		for i := range 50 {
			s.put(fmt.Sprint("fill", i), "x")
		}
		s.compact(s.rev - 100)
		flush(t, be, s.stores)
	}
}

func FuzzOpen(f *testing.F) {
	small := sample(f, 5)
	f.Add(uint32(0), []byte{1})
	f.Add(uint32(3*page+8), []byte{0x10})
	f.Fuzz(func(t *testing.T, at uint32, patch []byte) {
		bad := append([]byte{}, small...)
		copy(bad[int(at)%len(bad):], patch)
		use(t, bad) //nolint:errcheck // as above
	})
}
