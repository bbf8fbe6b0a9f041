package disk

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/vfs"
)

func mount(t *testing.T) (*Disk, string) {
	at := t.TempDir()
	d, err := Mount(at)
	if errors.Is(err, ErrNotPermitted) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d, at
}

func syncDir(t *testing.T, dir string) {
	f, err := os.Open(dir)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Sync())
}

// put writes a file, and syncs it and its name, if it is to be durable.
func put(t *testing.T, name string, content []byte, durable bool) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer f.Close()
	_, err = f.Write(content)
	require.NoError(t, err)
	if durable {
		require.NoError(t, f.Sync())
		syncDir(t, filepath.Dir(name))
	}
}

// What was synced is there after each loss of power. What wasn't is there in some of them and in
// others isn't: contents, names, names changed and removed, and a directory with all in it.
func TestLose(t *testing.T) {
	d, at := mount(t)
	in := func(name string) string { return filepath.Join(at, name) }
	seen := map[string]map[bool]bool{}
	note := func(what string, is bool) {
		if seen[what] == nil {
			seen[what] = map[bool]bool{}
		}
		seen[what][is] = true
	}
	there := func(name string) bool {
		_, err := os.Stat(in(name))
		return err == nil
	}
	old, changed := bytes.Repeat([]byte("o"), 20000), bytes.Repeat([]byte("n"), 20000)
	for seed := range uint64(40) {
		require.NoError(t, d.Clear())
		for _, name := range []string{"kept", "written", "cut", "renamed", "removed"} {
			put(t, in(name), old, true)
		}
		f, err := os.OpenFile(in("written"), os.O_RDWR, 0)
		require.NoError(t, err)
		_, err = f.WriteAt(changed, 0)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		put(t, in("cut"), changed, false)
		put(t, in("made"), changed, false)
		require.NoError(t, os.Rename(in("renamed"), in("to")))
		require.NoError(t, os.Remove(in("removed")))
		require.NoError(t, os.Mkdir(in("sub"), 0o700))
		put(t, in("sub/file"), old, true)

		require.NoError(t, d.Lose(rand.New(rand.NewPCG(seed, 1))))
		text, err := os.ReadFile(in("kept"))
		require.NoError(t, err)
		require.Equal(t, old, text)
		text, err = os.ReadFile(in("written"))
		require.NoError(t, err)
		note("written, wholly", bytes.Equal(text, changed))
		note("written, not at all", bytes.Equal(text, old))
		note("written, in part", !bytes.Equal(text, old) && !bytes.Equal(text, changed))
		require.Len(t, text, len(old))
		text, err = os.ReadFile(in("cut"))
		require.NoError(t, err)
		note("cut", !bytes.Equal(text, old))
		note("made", there("made"))
		note("removed", !there("removed"))
		require.True(t, there("renamed") != there("to"))
		note("renamed", there("to"))
		note("directory", there("sub"))
		require.Equal(t, there("sub"), there("sub/file"))
	}
	for what, is := range seen {
		require.Len(t, is, 2, "%s: always or never", what)
	}
}

// What a process finds that was killed, and not its machine, is what it wrote.
func TestAKillLosesNothing(t *testing.T) {
	d, at := mount(t)
	name := filepath.Join(at, "file")
	put(t, name, []byte("written"), false)
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, "written", string(text))
	syncDir(t, at)
	f, err := os.Open(name)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
	for seed := range uint64(10) {
		require.NoError(t, d.Lose(rand.New(rand.NewPCG(seed, 1))))
		text, err = os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, "written", string(text))
	}
}

func TestFailures(t *testing.T) {
	d, at := mount(t)
	f, err := os.Create(filepath.Join(at, "file"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Sync())
	d.Fail(func(op vfs.Op) syscall.Errno {
		if op == vfs.OpSync {
			return syscall.EIO
		}
		return 0
	})
	_, err = f.WriteString("lost")
	require.NoError(t, err)
	require.ErrorIs(t, f.Sync(), syscall.EIO)
	// A sync that failed and one that then succeeds: the disk hasn't got it.
	d.Fail(nil)
	require.NoError(t, f.Sync())
	syncDir(t, at)
	require.NoError(t, f.Close())
	lost := false
	for seed := range uint64(20) {
		require.NoError(t, d.Lose(rand.New(rand.NewPCG(seed, 1))))
		text, err := os.ReadFile(filepath.Join(at, "file"))
		require.NoError(t, err)
		lost = lost || string(text) != "lost"
	}
	require.True(t, lost)
	d.Fail(func(vfs.Op) syscall.Errno { return syscall.ENOSPC })
	require.ErrorIs(t, os.WriteFile(filepath.Join(at, "another"), []byte("x"), 0o600), syscall.ENOSPC)
	require.ErrorIs(t, os.Mkdir(filepath.Join(at, "dir"), 0o700), syscall.ENOSPC)
	d.Fail(nil)
}

func TestSlow(t *testing.T) {
	d, at := mount(t)
	f, err := os.Create(filepath.Join(at, "file"))
	require.NoError(t, err)
	defer f.Close()
	d.Slow(100 * time.Millisecond)
	defer d.Slow(0)
	began := time.Now()
	require.NoError(t, f.Sync())
	require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond)
}

// Directories are durable when they are made, as those of the simulation's file system are, also if a
// process was killed after it had made some of them.
func TestDirectoriesAreDurable(t *testing.T) {
	d, at := mount(t)
	for seed := range uint64(20) {
		require.NoError(t, d.Clear())
		if seed%2 == 0 {
			require.NoError(t, os.Mkdir(filepath.Join(at, "a"), 0o700))
		}
		dir := filepath.Join(at, "a", "b", "c")
		require.NoError(t, vfs.OS().MkdirAll(dir))
		require.NoError(t, d.Lose(rand.New(rand.NewPCG(seed, 1))))
		require.DirExists(t, dir)
	}
}

// A process that is started while a disk is mounted keeps nothing of it open, so that the disk can be unmounted while
// that process runs.
func TestMountsBesideNewProcesses(t *testing.T) {
	var others sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer others.Wait()
	defer stop()
	for range 4 {
		others.Go(func() {
			for ctx.Err() == nil {
				other := exec.CommandContext(ctx, "sleep", "60")
				if assert.NoError(t, other.Start()) {
					others.Go(func() { _ = other.Wait() })
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	for range 20 {
		d, err := Mount(t.TempDir())
		if errors.Is(err, ErrNotPermitted) {
			t.Skip(err)
		}
		require.NoError(t, err)
		require.NoError(t, d.Close())
	}
}
