//go:build !race

// One goroutine: there is nothing for the race detector, under which this takes five times as long.

package golden

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var write = flag.Bool("write", false, "write the golden files of the newest level, if it has none")

const root, sums = "testdata", "SHA256SUMS"

func dir(level int) string { return fmt.Sprintf("level-%d", level) }

// files are those of a level, by their names.
type files map[string][]byte

// all makes the files of a level with this program.
func all(t *testing.T, level int) files {
	f := files{"commands.txt": []byte(commandLines(t, level)), "peer.txt": []byte(peerLines(t, level))}
	maps.Copy(f, walFiles(t, level))
	for _, name := range stateFilesOf(level) {
		db, texts := stateFile(t, level, name)
		f[name+".db.gz"] = zip(t, db)
		maps.Copy(f, texts)
	}
	if level >= levelOfQuotas {
		f["quotas.txt"] = []byte(quotaLines(t))
	}
	return f
}

func (f files) writeTo(root string, level int) error {
	to := filepath.Join(root, dir(level))
	if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s exists: golden files are never written again, since a release has written data in these formats. A change needs a new level", to)
	}
	for name, content := range f {
		path := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	list, err := os.OpenFile(filepath.Join(root, sums), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		fmt.Fprintf(list, "%x  %s/%s\n", sha256.Sum256(f[name]), dir(level), name)
	}
	return list.Close()
}

// verify compares the files of all levels with their checksums.
func verify(root string) error {
	listed, err := os.ReadFile(filepath.Join(root, sums))
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for line := range strings.Lines(string(listed)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if fmt.Sprintf("%x", sha256.Sum256(content)) != sum {
			return fmt.Errorf("%s has been changed: a release has written data in this format, and it must be read for ever. A change of the format needs a new level", name)
		}
		known[name] = true
	}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		if err == nil && !d.IsDir() && name != sums && !known[filepath.ToSlash(name)] {
			return fmt.Errorf("%s isn't in %s", name, sums)
		}
		return err
	})
}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(m.Run())
}

func TestWrite(t *testing.T) {
	if !*write {
		t.Skip("only with -write")
	}
	require.NoError(t, all(t, newest).writeTo(root, newest))
}

func TestEveryLevelHasItsFilesUnchanged(t *testing.T) {
	for level := 1; level <= newest; level++ {
		require.DirExists(t, filepath.Join(root, dir(level)), "go test ./internal/golden -write makes them")
	}
	require.NoError(t, verify(root))
}

func TestChangesOfGoldenFilesAreFound(t *testing.T) {
	at := t.TempDir()
	require.NoError(t, files{"a.txt": []byte("one"), "wal/b": []byte("two")}.writeTo(at, 1))
	require.NoError(t, verify(at))
	require.ErrorContains(t, files{"a.txt": []byte("three")}.writeTo(at, 1), "golden files are never written again")
	require.NoError(t, files{"a.txt": []byte("three")}.writeTo(at, 2))
	require.NoError(t, verify(at))
	a := filepath.Join(at, dir(1), "a.txt")
	require.NoError(t, os.WriteFile(a, []byte("on3"), 0o644))
	require.ErrorContains(t, verify(at), "level-1/a.txt has been changed")
	require.NoError(t, os.WriteFile(a, []byte("one"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(at, dir(1), "c"), nil, 0o644))
	require.ErrorContains(t, verify(at), "isn't in SHA256SUMS")
}

// each runs a test for the files of each level.
func each(t *testing.T, test func(t *testing.T, level int, read func(name string) []byte)) {
	for level := 1; level <= newest; level++ {
		t.Run(dir(level), func(t *testing.T) {
			test(t, level, func(name string) []byte {
				b, err := os.ReadFile(filepath.Join(root, dir(level), filepath.FromSlash(name)))
				require.NoError(t, err)
				return b
			})
		})
	}
}

func zip(t *testing.T, b []byte) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	require.NoError(t, err)
	_, err = w.Write(b)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

func unzip(t *testing.T, b []byte) []byte {
	r, err := gzip.NewReader(bytes.NewReader(b))
	require.NoError(t, err)
	size := binary.LittleEndian.Uint32(b[len(b)-4:]) // in the last bytes of the format
	out := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	_, err = io.Copy(out, r)
	require.NoError(t, err)
	return out.Bytes()
}

// named is one encoding with the name of what it is of.
type named struct {
	name string
	b    []byte
}

func lines(list []named) string {
	var out strings.Builder
	for _, n := range list {
		fmt.Fprintf(&out, "%s: %x\n", n.name, n.b)
	}
	return out.String()
}
