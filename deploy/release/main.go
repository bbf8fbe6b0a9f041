// Release makes the archives of a release: the programs for each platform, their checksums, and a
// bill of materials (CycloneDX) for each archive.
//
//	make release
//
// The same commit, built by the same release of Go, gives the same bytes, wherever and whenever:
// paths are trimmed, and archives have no times but the commit's, no users, and one order.
package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stoa-kv/stoa/internal/version"
)

// platform is what an archive is for.
type platform struct {
	os, arch string
	programs []string
	files    []string // of the repository, beside
}

// The server needs Linux; stoactl runs on administrators' machines, too.
var platforms = []platform{
	{"linux", "amd64", []string{"stoa", "stoactl", "waldump"}, serverFiles},
	{"linux", "arm64", []string{"stoa", "stoactl", "waldump"}, serverFiles},
	{"darwin", "amd64", []string{"stoactl"}, clientFiles},
	{"darwin", "arm64", []string{"stoactl"}, clientFiles},
}

var (
	clientFiles = []string{"LICENSE", "README.md", "CHANGELOG.md"}
	serverFiles = append(slices.Clone(clientFiles), "deploy/systemd/stoa.service", "deploy/systemd/stoa.yaml",
		"deploy/prometheus/stoa.rules.yml", "deploy/grafana/stoa-cluster.json", "deploy/grafana/stoa-partitions.json", "deploy/grafana/stoa-extensions.json",
		"deploy/grafana/stoa-sidecars.json")
)

func main() {
	out := flag.String("out", "dist", "directory of the archives, emptied before")
	only := flag.String("only", "", "one platform, as linux/arm64")
	flag.Parse()
	if err := release(*out, *only); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func release(out, only string) error {
	at, err := commitTime()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return fmt.Errorf("emptying the directory of the archives: %w", err)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return fmt.Errorf("making the directory of the archives: %w", err)
	}
	files := map[string][]byte{}
	for _, p := range platforms {
		if only != "" && only != p.os+"/"+p.arch {
			continue
		}
		name := fmt.Sprintf("stoa_%s_%s_%s", version.Stoa, p.os, p.arch)
		entries, bill, err := p.build(name, at)
		if err != nil {
			return fmt.Errorf("building for %s/%s: %w", p.os, p.arch, err)
		}
		if files[name+".tar.gz"], err = archive(entries, at); err != nil {
			return err
		}
		files[name+".cdx.json"] = bill
	}
	var sums bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(files[name]), name)
	}
	files["SHA256SUMS"] = sums.Bytes()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(out, name), content, 0o644); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	fmt.Print(sums.String())
	return nil
}

// commitTime is the only time in the archives.
func commitTime() (time.Time, error) {
	out, err := exec.Command("git", "log", "-1", "--format=%ct").Output()
	if err != nil {
		return time.Time{}, fmt.Errorf("asking git for the time of the commit: %w", err)
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("asking git for the time of the commit: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// build compiles the programs, and returns what goes into the archive and its bill of materials.
func (p platform) build(name string, at time.Time) (entries []entry, bill []byte, err error) {
	dir, err := os.MkdirTemp("", "stoa-release-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	args := []string{"build", "-trimpath", "-buildvcs=true", "-o", dir + "/"}
	var programs []string
	for _, program := range p.programs {
		args = append(args, "./cmd/"+program)
		programs = append(programs, filepath.Join(dir, program))
	}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("%w\n%s", err, out)
	}
	infos, err := infosOf(programs)
	if err != nil {
		return nil, nil, err
	}
	for _, info := range infos {
		if err := committed(info.Settings); err != nil {
			return nil, nil, err
		}
	}
	if bill, err = materials(name, at, infos); err != nil {
		return nil, nil, err
	}
	for _, path := range append(programs, p.files...) {
		e := entry{name: name + "/" + filepath.ToSlash(path), mode: 0o644}
		if strings.HasPrefix(path, dir) {
			e = entry{name: name + "/bin/" + filepath.Base(path), mode: 0o755}
		}
		if e.content, err = os.ReadFile(path); err != nil {
			return nil, nil, err
		}
		entries = append(entries, e)
	}
	return entries, bill, nil
}

// committed refuses a program that no commit stands for, by what Go has noted in it.
func committed(settings []debug.BuildSetting) error {
	modified := ""
	for _, s := range settings {
		if s.Key == "vcs.modified" {
			modified = s.Value
		}
	}
	switch modified {
	case "false":
		return nil
	case "":
		return errors.New("the programs don't name their commit: Go finds none in a linked worktree; make the release in a clone")
	}
	return errors.New("there are changes that aren't committed, or files that git doesn't know: make the release in a clean clone")
}
