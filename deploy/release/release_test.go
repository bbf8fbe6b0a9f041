package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An archive has its files, with nothing of the machine that made it.
func TestArchive(t *testing.T) {
	at := time.Unix(1_800_000_000, 0).UTC()
	entries := []entry{{"a/bin/stoa", 0o755, []byte("program")}, {"a/LICENSE", 0o644, []byte("text")}}
	file, err := archive(entries, at)
	require.NoError(t, err)
	slices.Reverse(entries)
	again, err := archive(entries, at)
	require.NoError(t, err)
	require.Equal(t, file, again)

	z, err := gzip.NewReader(bytes.NewReader(file))
	require.NoError(t, err)
	require.True(t, z.ModTime.IsZero())
	r := tar.NewReader(z)
	for _, want := range entries {
		h, err := r.Next()
		require.NoError(t, err)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, want, entry{h.Name, h.Mode, content})
		require.Equal(t, [4]any{at, 0, "", ""}, [4]any{h.ModTime.UTC(), h.Uid, h.Uname, h.Gname})
	}
	_, err = r.Next()
	require.ErrorIs(t, err, io.EOF)
}

// The bill of this test's own program has testify with its version, once.
func TestMaterials(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	infos, err := infosOf([]string{self, self})
	require.NoError(t, err)
	text, err := materials("x", time.Unix(0, 0).UTC(), infos)
	require.NoError(t, err)
	var b bom
	require.NoError(t, json.Unmarshal(text, &b))
	require.Equal(t, "1970-01-01T00:00:00Z", b.Metadata.Timestamp)
	refs := map[string]bool{}
	for _, c := range b.Components {
		require.False(t, refs[c.Ref])
		refs[c.Ref] = true
		require.NotEmpty(t, c.Version)
		require.Equal(t, "pkg:golang/"+c.Name+"@"+c.Version, c.PURL)
	}
	require.True(t, slices.ContainsFunc(b.Components, func(c component) bool { return c.Name == "stdlib" }))
}

// What goes into an archive exists, and all dashboards go.
func TestFilesExist(t *testing.T) {
	dashboards, err := filepath.Glob("../grafana/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, dashboards)
	for _, d := range dashboards {
		require.Contains(t, serverFiles, "deploy/grafana/"+filepath.Base(d))
	}
	for _, p := range platforms {
		for _, f := range p.files {
			require.FileExists(t, "../../"+f)
		}
		for _, program := range p.programs {
			require.DirExists(t, "../../cmd/"+program)
		}
	}
}

// A program is released if it is that of a commit, and nothing else.
func TestProgramsOfNoCommitAreRefused(t *testing.T) {
	built := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "GOOS", Value: "linux"}, {Key: "vcs.modified", Value: modified}}
	}
	require.NoError(t, committed(built("false")))
	require.ErrorContains(t, committed(built("true")), "aren't committed")
	require.ErrorContains(t, committed(nil), "in a clone")
}
