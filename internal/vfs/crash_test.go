package vfs

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

func create(t require.TestingT, m *Mem, name, content string) File {
	require.NoError(t, m.MkdirAll("/d"))
	f, err := m.Create(name)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte(content), 0)
	require.NoError(t, err)
	return f
}

// read returns the content of a file, or how opening it failed.
func read(t require.TestingT, m *Mem, name string) (string, error) {
	f, err := m.OpenRead(name)
	if err != nil {
		return "", err
	}
	size, err := f.Size()
	require.NoError(t, err)
	b := make([]byte, size)
	_, err = f.ReadAt(b, 0)
	require.NoError(t, err)
	return string(b), nil
}

// outcomes crashes m with many seeds and counts the surviving states.
func outcomes(m *Mem, look func(*Mem) string) map[string]int {
	seen := map[string]int{}
	for seed := range uint64(300) {
		seen[look(m.Crash(seeded(seed)))]++
	}
	return seen
}

func TestACrashDiscardsUnsyncedData(t *testing.T) {
	look := func(m *Mem) string {
		s, err := read(t, m, "/d/f")
		if err != nil {
			return "gone"
		}
		return s
	}
	m := NewMem()
	f := create(t, m, "/d/f", "ab")
	require.Contains(t, outcomes(m, look), "gone")
	require.ErrorIs(t, f.Sync(), ErrCrashed)

	m = NewMem()
	f = create(t, m, "/d/f", "ab")
	require.NoError(t, f.Sync())
	seen := outcomes(m, look)
	require.Len(t, seen, 2, "the name is still in doubt, the content no more: %v", seen)

	m = NewMem()
	f = create(t, m, "/d/f", "ab")
	require.NoError(t, f.Sync())
	require.NoError(t, m.SyncDir("/d"))
	require.Equal(t, map[string]int{"ab": 300}, outcomes(m, look))

	m = NewMem()
	f = create(t, m, "/d/f", "ab")
	require.NoError(t, f.Sync())
	require.NoError(t, m.SyncDir("/d"))
	_, err := f.WriteAt([]byte("cd"), 2)
	require.NoError(t, err)
	seen = outcomes(m, look)
	require.Contains(t, seen, "ab")
	require.Contains(t, seen, "abc")
	require.Contains(t, seen, "abcd")
	for s := range seen {
		require.Equal(t, "ab", s[:2], "what was durable is never harmed")
	}
}

func TestARenameIsAtomic(t *testing.T) {
	m := NewMem()
	old := create(t, m, "/d/f", "old")
	require.NoError(t, old.Sync())
	require.NoError(t, m.SyncDir("/d"))
	tmp := create(t, m, "/d/tmp", "new")
	require.NoError(t, tmp.Sync())
	require.NoError(t, m.Rename("/d/tmp", "/d/f"))
	seen := outcomes(m, func(m *Mem) string {
		s, err := read(t, m, "/d/f")
		require.NoError(t, err)
		return s
	})
	require.Contains(t, seen, "old")
	require.Contains(t, seen, "new")
	require.Len(t, seen, 2)
}

func TestAfterACrashTheOldFileSystemFails(t *testing.T) {
	m := NewMem()
	f := create(t, m, "/d/f", "x")
	l, err := m.Lock("/d/LOCK")
	require.NoError(t, err)
	next := m.Restart()
	_, err = f.WriteAt([]byte("y"), 0)
	require.ErrorIs(t, err, ErrCrashed)
	require.ErrorIs(t, f.Sync(), ErrCrashed)
	_, err = m.List("/d")
	require.ErrorIs(t, err, ErrCrashed)
	s, err := read(t, next, "/d/f")
	require.NoError(t, err)
	require.Equal(t, "x", s, "a killed process loses nothing that was written")
	_, err = next.Lock("/d/LOCK")
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

func TestAFailedSyncIsForgotten(t *testing.T) {
	m := NewMem()
	f := create(t, m, "/d/f", "abc")
	require.NoError(t, f.Sync())
	require.NoError(t, m.SyncDir("/d"))
	_, err := f.WriteAt([]byte("ABC"), 0)
	require.NoError(t, err)
	disk := errors.New("input/output error")
	m.Inject(func(op Op, name string) error {
		if op == OpSync {
			return disk
		}
		return nil
	})
	require.ErrorIs(t, f.Sync(), disk)
	m.Inject(nil)
	require.NoError(t, f.Sync(), "a second sync seems to succeed")
	look := func(m *Mem) string { s, _ := read(t, m, "/d/f"); return s }
	require.Contains(t, outcomes(m, look), "abc", "and the data may be lost all the same")
}

// After any sequence of writes, syncs and a crash, every byte is either the
// durable one or one written there since.
func TestCrashKeepsInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := NewMem()
		f := create(t, m, "/d/f", "")
		require.NoError(t, m.SyncDir("/d"))
		var durable, now []byte
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			if rapid.IntRange(0, 3).Draw(t, "sync") == 0 {
				require.NoError(t, f.Sync())
				durable = bytes.Clone(now)
				continue
			}
			b := bytes.Repeat([]byte{byte(rapid.IntRange(1, 255).Draw(t, "byte"))}, rapid.IntRange(1, 6000).Draw(t, "n"))
			// A log only ever writes behind what is durable.
			off := rapid.IntRange(len(durable), len(durable)+6000).Draw(t, "off")
			_, err := f.WriteAt(b, int64(off))
			require.NoError(t, err)
			if n := off + len(b) - len(now); n > 0 {
				now = append(now, make([]byte, n)...)
			}
			copy(now[off:], b)
		}
		seed := rapid.Uint64().Draw(t, "seed")
		s, err := read(t, m.Crash(seeded(seed)), "/d/f")
		require.NoError(t, err)
		require.LessOrEqual(t, len(s), len(now))
		require.Equal(t, string(durable), s[:len(durable)])
		again, err := read(t, m.Crash(seeded(seed)), "/d/f")
		require.NoError(t, err)
		require.Equal(t, s, again, "the seed decides")
	})
}
