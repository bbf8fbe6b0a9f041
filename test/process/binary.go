package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/stoa-kv/stoa/test/process/clock"
)

// Binary is a server program with its kind.
type Binary struct {
	Path string
	// Stoa means that it accepts stoa's own flags (--partitions) beside etcd's.
	Stoa bool
	// ClassPath makes it a ZooKeeper, with Path naming java.
	ClassPath string
	// Clock means that its servers' wall clocks can be set (Server.SetClock).
	Clock bool
}

// Root finds the repository from any directory of it.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("finding the repository: no go.mod above the working directory")
		}
		dir = up
	}
}

var buildStoa = sync.OnceValues(func() (string, error) {
	return build("bin/stoa", "build", "-o", "bin/stoa", "./cmd/stoa")
})

// WithClock is stoa, built from this checkout, with a wall clock that tests set (package clock).
func WithClock() (Binary, error) {
	path, err := buildWithClock()
	return Binary{Path: path, Stoa: true, Clock: true}, err
}

var buildWithClock = sync.OnceValues(func() (string, error) {
	dir, err := TempDir("clock")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	overlay, err := clock.Overlay(dir)
	if err != nil {
		return "", err
	}
	return build("bin/stoa-clock", "build", "-overlay", overlay, "-o", "bin/stoa-clock", "./cmd/stoa")
})

// Stoactl returns the path of stoactl, built from this checkout.
var Stoactl = sync.OnceValues(func() (string, error) {
	return build("bin/stoactl", "build", "-o", "bin/stoactl", "./cmd/stoactl")
})

// LinkStoactl puts a link to stoactl, built from this checkout, into a directory.
func LinkStoactl(dir string) error {
	path, err := Stoactl()
	if err != nil {
		return err
	}
	return os.Symlink(path, filepath.Join(dir, "stoactl"))
}

var buildPeers = sync.OnceValues(func() (string, error) {
	return build("bin/peers", "run", "./test/peers")
})

// build builds static programs, as make does: what is in bin is the same, whoever has built it, and isn't linked again.
func build(result string, args ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", result, err, out)
	}
	return filepath.Join(root, result), nil
}

// Peer returns the path of one of the programs of bin/peers, which it builds if
// necessary: etcd, etcdctl or etcdutl.
func Peer(name string) (string, error) {
	dir, err := buildPeers()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, name), nil
}

// ServerEnv is the environment variable that chooses the server under test.
const ServerEnv = "STOA_COMPAT_SERVER"

// UnderTest is the server that ServerEnv asks for: stoa (the default, built from
// this checkout), etcd, or the path of a binary.
func UnderTest() (Binary, error) {
	return Choose(os.Getenv(ServerEnv))
}

// Choose resolves "stoa", "etcd", "zookeeper" or a path.
func Choose(server string) (Binary, error) {
	switch server {
	case "", "stoa":
		path, err := buildStoa()
		return Binary{Path: path, Stoa: true}, err
	case "etcd":
		path, err := Peer("etcd")
		return Binary{Path: path}, err
	case "zookeeper":
		return zooKeeper()
	}
	path, err := filepath.Abs(server)
	if err != nil {
		return Binary{}, fmt.Errorf("finding the server %q: %w", server, err)
	}
	out, err := exec.Command(path, "--version").CombinedOutput()
	if err != nil {
		return Binary{}, fmt.Errorf("asking %s for its version: %w\n%s", path, err, out)
	}
	return Binary{Path: path, Stoa: strings.HasPrefix(string(out), "stoa ")}, nil
}
