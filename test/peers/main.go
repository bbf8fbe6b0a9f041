// Peers gets the programs that stoa is compared with into bin/peers: it builds
// etcd's server, etcdctl and etcdutl, and fetches ZooKeeper.
//
//	go run ./test/peers             build what is missing of etcd
//	go run ./test/peers -force      build all of it again
//	go run ./test/peers zookeeper   fetch what is missing of ZooKeeper
//
// The versions of etcd's are pinned by test/peers/etcd/go.mod, a module of its own so
// that what etcd's server needs never enters stoa's module graph. Nothing is
// installed outside the repository, and a second run finds the binaries there
// (a stamp file names the versions that they were built from) and ends at once. ZooKeeper comes as jars from Maven
// Central, each with the SHA-256 that zookeeper.go pins, and needs a java in PATH to run.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// packages maps the name of a binary to the main package that it is built from.
var packages = map[string]string{
	"etcd":    "go.etcd.io/etcd/server/v3",
	"etcdctl": "go.etcd.io/etcd/etcdctl/v3",
	"etcdutl": "go.etcd.io/etcd/etcdutl/v3",
}

func main() {
	force := flag.Bool("force", false, "build even what is already there")
	flag.Parse()
	get := buildEtcd
	switch what := flag.Arg(0); what {
	case "", "etcd":
	case "zookeeper":
		get = fetchZooKeeper
	default:
		fmt.Fprintf(os.Stderr, "peers: %q is neither etcd nor zookeeper\n", what)
		os.Exit(2)
	}
	if err := get(*force); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func buildEtcd(force bool) error {
	root, err := repository()
	if err != nil {
		return err
	}
	module := filepath.Join(root, "test", "peers", "etcd")
	out := filepath.Join(root, "bin", "peers")
	if err := os.MkdirAll(out, 0o755); err != nil {
		return fmt.Errorf("making the directory of the peers: %w", err)
	}
	pinned, err := os.ReadFile(filepath.Join(module, "go.sum"))
	if err != nil {
		return fmt.Errorf("reading the pinned versions: %w", err)
	}
	stamp := filepath.Join(out, ".built-from")
	if built, err := os.ReadFile(stamp); !force && err == nil && bytes.Equal(built, pinned) {
		return nil
	}
	for name, pkg := range packages {
		fmt.Fprintf(os.Stderr, "building %s from %s\n", name, pkg)
		// Built beside and renamed, because a test may be running the old one.
		tmp := filepath.Join(out, "."+name+".new")
		cmd := exec.Command("go", "build", "-trimpath", "-o", tmp, pkg)
		cmd.Dir = module
		cmd.Env = append(os.Environ(), "GOWORK=off")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", pkg, err, text)
		}
		if err := os.Rename(tmp, filepath.Join(out, name)); err != nil {
			return fmt.Errorf("putting %s in place: %w", name, err)
		}
	}
	if err := os.WriteFile(stamp, pinned, 0o644); err != nil {
		return fmt.Errorf("noting what was built: %w", err)
	}
	return nil
}

// repository finds stoa's root, so that the command works from any directory of it.
func repository() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/stoa-kv/stoa").Output()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
