//go:build faults

package faults

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sys/unix"

	"github.com/stoa-kv/stoa/test/process"
)

// requireStoa skips tests of more than etcd guarantees.
func requireStoa(t *testing.T) {
	t.Helper()
	bin, err := process.UnderTest()
	require.NoError(t, err)
	if !bin.Stoa {
		t.Skip("asks more of damaged files than etcd promises")
	}
}

func value(i int) []byte { return fmt.Appendf(nil, "value-%06d", i) }

func diskKey(i int) []byte { return fmt.Appendf(nil, "/disk/%d/key-%06d", i%5, i) }

// fill puts n keys, one after the other, and returns the number that was acknowledged
// before the first error.
func fill(t *testing.T, s *process.Server, from, n int, pad int) (acknowledged int, err error) {
	t.Helper()
	conn, err := dial(s.ClientURL)
	require.NoError(t, err)
	defer conn.Close()
	for i := range n {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: diskKey(from + i), Value: append(value(from+i), make([]byte, pad)...)})
		cancel()
		if err != nil {
			return i, err
		}
	}
	return n, nil
}

// requireAll checks that the first n keys are there.
func requireAll(t *testing.T, s *process.Server, n int) {
	t.Helper()
	conn, err := dial(s.ClientURL)
	require.NoError(t, err)
	defer conn.Close()
	resp, err := pb.NewKVClient(conn).Range(t.Context(), &pb.RangeRequest{Key: []byte("/disk/"), RangeEnd: []byte("/disk0"), KeysOnly: true})
	require.NoError(t, err)
	have := map[string]bool{}
	for _, kv := range resp.Kvs {
		have[string(kv.Key)] = true
	}
	for i := range n {
		require.True(t, have[string(diskKey(i))], "key %d of %d is lost", i, n)
	}
}

// find looks for bytes in the files below a directory whose path holds part.
func find(t *testing.T, dir, part string, what []byte) (file string, offset int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || file != "" || !strings.Contains(path[len(dir):], part) {
			return err
		}
		text, err := os.ReadFile(path)
		if i := bytes.Index(text, what); i >= 0 {
			file, offset = path, i
		}
		return err
	})
	require.NoError(t, err)
	require.NotEmpty(t, file, "%q is in no file of %s with %q in its name", what, dir, part)
	return file, offset
}

func flip(t *testing.T, file string, offset int) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	var b [1]byte
	_, err = f.ReadAt(b[:], int64(offset))
	require.NoError(t, err)
	b[0] ^= 0x10
	_, err = f.WriteAt(b[:], int64(offset))
	require.NoError(t, err)
}

// requireRefuses starts a server that must exit with an error.
func requireRefuses(t *testing.T, s *process.Server, says ...string) {
	t.Helper()
	before := len(s.LogTail(1 << 30))
	require.NoError(t, s.Start())
	code, err := s.Wait(15 * time.Second)
	require.NoError(t, err)
	require.NotZero(t, code)
	log := s.LogTail(1 << 30)[before:]
	_, log, _ = strings.Cut(log, "\n") // behind its command line
	for _, say := range says {
		require.Contains(t, log, say)
	}
	require.NotContains(t, log, "panic:")
}

func TestDamagedLog(t *testing.T) {
	requireStoa(t)
	t.Run("a bit in its midst", func(t *testing.T) {
		c := process.StartT(t, process.Spec{Partitions: 2})
		s := c.Servers[0]
		_, err := fill(t, s, 0, 200, 0)
		require.NoError(t, err)
		require.NoError(t, s.Kill())
		file, at := find(t, s.DataDir, "wal", value(50))
		flip(t, file, at)
		requireRefuses(t, s, filepath.Base(file), "offset")
		// It stays refused, and starts once the bit is flipped back.
		requireRefuses(t, s, filepath.Base(file))
		flip(t, file, at)
		require.NoError(t, c.Restart(t.Context(), s))
		requireAll(t, s, 200)
	})
	t.Run("a torn tail", func(t *testing.T) {
		c := process.StartT(t, process.Spec{Partitions: 2})
		s := c.Servers[0]
		_, err := fill(t, s, 0, 200, 0)
		require.NoError(t, err)
		require.NoError(t, s.Kill())
		// The last record is half written, as a power cut leaves it.
		file, at := find(t, s.DataDir, "wal", value(199))
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		clear(text[at+4:])
		require.NoError(t, os.WriteFile(file, text, 0o600))
		require.NoError(t, c.Restart(t.Context(), s))
		requireAll(t, s, 199)
		_, err = fill(t, s, 200, 10, 0)
		require.NoError(t, err)
	})
}

func TestDamagedBackend(t *testing.T) {
	requireStoa(t)
	c := process.StartT(t, process.Spec{Partitions: 2})
	s := c.Servers[0]
	_, err := fill(t, s, 0, 2000, 100)
	require.NoError(t, err)
	_, _, err = s.Stop()
	require.NoError(t, err)
	file := filepath.Join(s.DataDir, "member", "snap", "db")
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	// The file is larger than what is in it: bbolt's meta pages, the first two, tell how
	// large pages are and how many are used.
	page, used := int(binary.LittleEndian.Uint32(whole[16+8:])), 0
	for _, meta := range []int{0, page} {
		used = max(used, page*int(binary.LittleEndian.Uint64(whole[meta+16+16+16+8:])))
	}
	require.Greater(t, used, 20*page)
	for name, damage := range map[string]func([]byte) []byte{
		"cut in half":         func(b []byte) []byte { return b[:used/2] },
		"empty":               func([]byte) []byte { return nil },
		"both meta pages":     func(b []byte) []byte { b[30] ^= 1; b[page+30] ^= 1; return b },
		"not a backend":       func(b []byte) []byte { clear(b); return b },
		"zeroes in its midst": func(b []byte) []byte { clear(b[used/4 : used*3/4]); return b },
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(file, damage(bytes.Clone(whole)), 0o600))
			requireRefuses(t, s, file)
		})
	}
	require.NoError(t, os.WriteFile(file, whole, 0o600))
	require.NoError(t, c.Restart(t.Context(), s))
	requireAll(t, s, 2000)
}

// A full disk stops the server (a sync that failed is never tried again); what it had
// acknowledged is there once there is room.
func TestFullDisk(t *testing.T) {
	requireStoa(t)
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=160m"); err != nil {
		t.Skipf("can't mount a small disk: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(disk, unix.MNT_DETACH) })
	c := process.StartT(t, process.Spec{Partitions: 2, Args: []string{"--data-dir=" + filepath.Join(disk, "data")}})
	s := c.Servers[0]
	acknowledged, err := fill(t, s, 0, 4000, 64<<10)
	require.Error(t, err, "the disk did not fill")
	t.Logf("%d writes acknowledged, then: %v", acknowledged, err)
	_, err = s.Wait(20 * time.Second)
	require.NoError(t, err, "a server without room must stop")
	require.Contains(t, s.LogTail(4000), "no space left on device")
	require.NoError(t, unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT, "size=1g"))
	require.NoError(t, c.Restart(t.Context(), s))
	requireAll(t, s, acknowledged)
}

func contextFor(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
