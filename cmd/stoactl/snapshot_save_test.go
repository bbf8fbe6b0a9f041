package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// streamOf sends a file as a server does, and then err.
func streamOf(content []byte, err error) func() (*pb.SnapshotResponse, error) {
	const chunk = 700
	sum := sha256.Sum256(content)
	signed := false
	return func() (*pb.SnapshotResponse, error) {
		if len(content) > 0 {
			n := min(chunk, len(content))
			r := &pb.SnapshotResponse{Blob: content[:n], RemainingBytes: uint64(len(content) - n), Version: "3.7.0"}
			content = content[n:]
			return r, nil
		}
		if !signed {
			signed = true
			return &pb.SnapshotResponse{Blob: sum[:], Version: "3.7.0"}, nil
		}
		return nil, err
	}
}

// first lets n answers through, and then says err.
func first(n int, recv func() (*pb.SnapshotResponse, error), err error) func() (*pb.SnapshotResponse, error) {
	return func() (*pb.SnapshotResponse, error) {
		if n--; n < 0 {
			return nil, err
		}
		return recv()
	}
}

func none(int64, int64) {}

func TestSaveAs(t *testing.T) {
	content := bytes.Repeat([]byte("stoa"), 1024)
	file := filepath.Join(t.TempDir(), "file")
	var done, total int64
	version, err := saveAs(file, streamOf(content, io.EOF), func(d, all int64) { done, total = d, all })
	require.NoError(t, err)
	require.Equal(t, "3.7.0", version)
	require.Equal(t, int64(4096+32), done)
	require.Equal(t, done, total)
	saved, err := os.ReadFile(file)
	require.NoError(t, err)
	sum := sha256.Sum256(content)
	require.Equal(t, append(content, sum[:]...), saved)
	require.NoFileExists(t, file+".part")
}

// Whatever is wrong with the stream, there is no new file, and an earlier one is as it was.
func TestSaveOfABrokenStream(t *testing.T) {
	content := bytes.Repeat([]byte("stoa"), 1024)
	broken := errors.New("connection reset")
	whole := func() func() (*pb.SnapshotResponse, error) { return streamOf(content, io.EOF) }
	flipped := whole()
	streams := map[string]func() (*pb.SnapshotResponse, error){
		"broken before the end":   streamOf(content, broken),
		"cut in the content":      first(3, whole(), io.EOF),
		"cut before the checksum": first(6, whole(), io.EOF),
		"broken in the content":   first(3, whole(), broken),
		"nothing":                 first(0, whole(), io.EOF),
		"a bit flipped": func() (*pb.SnapshotResponse, error) {
			r, err := flipped()
			if err == nil && r.RemainingBytes == 0 && len(r.Blob) > 32 {
				r.Blob = bytes.Clone(r.Blob)
				r.Blob[5] ^= 1
			}
			return r, err
		},
	}
	for name, recv := range streams {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "file")
			require.NoError(t, os.WriteFile(file, []byte("earlier"), 0o600))
			_, err := saveAs(file, recv, none)
			require.ErrorContains(t, err, "could not save the snapshot")
			earlier, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, "earlier", string(earlier))
			require.NoFileExists(t, file+".part")
		})
	}
	_, err := saveAs(filepath.Join(t.TempDir(), "no", "such"), whole(), none)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A snapshot isn't mixed with another that is saved to the same file meanwhile, by a timer that came again, say.
func TestSaveBesideAnother(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	content := bytes.Repeat([]byte("stoa"), 1024)
	recv, parts := streamOf(content, io.EOF), 0
	_, err := saveAs(file, func() (*pb.SnapshotResponse, error) {
		if parts++; parts == 3 {
			_, err := saveAs(file, streamOf(bytes.Repeat([]byte("etcd"), 1024), io.EOF), none)
			require.ErrorContains(t, err, "another process is saving a snapshot to "+file)
		}
		return recv()
	}, none)
	require.NoError(t, err)
	saved, err := os.ReadFile(file)
	require.NoError(t, err)
	sum := sha256.Sum256(content)
	require.Equal(t, append(content, sum[:]...), saved)
	_, err = saveAs(file, streamOf(content, io.EOF), none)
	require.NoError(t, err)
}

// The last good snapshot stays whole, also if others are saved to the same file just when it gets its name.
func TestSavedIsNotWrittenAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	content := bytes.Repeat([]byte("stoa"), 1024)
	broken := errors.New("connection reset")
	var others sync.WaitGroup
	var over atomic.Bool
	defer others.Wait()
	defer over.Store(true)
	for range 3 {
		others.Go(func() {
			for !over.Load() {
				if _, err := saveAs(file, streamOf(content, broken), none); !errors.Is(err, broken) && !strings.Contains(err.Error(), "another process") {
					t.Error(err)
				}
			}
		})
	}
	for saved := 0; saved < 100 && !t.Failed(); {
		_, err := saveAs(file, streamOf(content, io.EOF), none)
		if err != nil && strings.Contains(err.Error(), "another process") {
			continue
		}
		require.NoError(t, err)
		saved++
		for range 3 {
			info, err := os.Stat(file)
			require.NoError(t, err)
			require.EqualValues(t, len(content)+sha256.Size, info.Size())
		}
	}
}

func TestProgressBar(t *testing.T) {
	var out bytes.Buffer
	b := &bar{w: &out, what: "saving", last: -1}
	for i := range int64(1000) {
		b.show(i, 1000)
	}
	b.end()
	require.Equal(t, 100, bytes.Count(out.Bytes(), []byte("\r")), "once for each percent")
	require.Contains(t, out.String(), "saving [====================                    ]  50 %  500 B of 1.0 kB")
	a := &app{errs: &out}
	require.Nil(t, a.progressBar("saving").w, "not in a file")
}
