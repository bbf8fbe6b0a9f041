// Restore measures backup and restore beside etcd's tools: a server with many keys is saved
// with stoactl and etcdctl, and the file described and restored with stoactl and etcdutl,
// a few times in turns. It prints the medians of the time and of the peak memory as a table
// in Markdown, and fails unless the restored servers, of stoa and etcd, have the saved
// server's HashKV.
//
//	go run ./test/restore -keys 1000000 -rounds 3
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/test/process"
)

func main() {
	keys := flag.Int("keys", 1_000_000, "keys in the server, with values of 256 bytes")
	rounds := flag.Int("rounds", 3, "measurements of each tool")
	flag.Parse()
	dir, err := os.MkdirTemp("", "stoa-restore-")
	if err == nil {
		err = run(dir, *keys, *rounds)
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "restore:", err)
		os.Exit(1)
	}
}

// result is one run of a tool.
type result struct {
	took time.Duration
	cpu  time.Duration
	peak int64 // bytes, with those pages of the mapped file that were touched
}

// job is what a tool is run for.
type job struct {
	what, tool string
	command    func() *exec.Cmd
	results    []result
}

type bench struct {
	dir, file, stoactl string
	server             *process.Server
	hash               uint32
	revision           int64
}

func run(dir string, keys, rounds int) error {
	b := &bench{dir: dir, file: filepath.Join(dir, "snapshot")}
	var err error
	if b.stoactl, err = buildStoactl(dir); err != nil {
		return err
	}
	c, err := b.start("stoa", filepath.Join(dir, "server"), "--partitions=4", "--quota-backend-bytes=8589934592")
	if err != nil {
		return err
	}
	defer c.Close()
	b.server = c.Servers[0]
	if err := process.Fill(keys, b.server.ClientURL); err != nil {
		return err
	}
	if b.hash, b.revision, err = hashKV(b.server, 0); err != nil {
		return err
	}
	jobs, err := b.jobs()
	if err != nil {
		return err
	}
	for range rounds {
		for _, j := range jobs {
			if err := j.measure(); err != nil {
				return err
			}
		}
	}
	if err := c.Close(); err != nil {
		return err
	}
	b.print(jobs, keys)
	return b.verify()
}

func (b *bench) tool(name string) (string, error) {
	if name == "stoactl" {
		return b.stoactl, nil
	}
	return process.Peer(name)
}

func (b *bench) jobs() ([]*job, error) {
	var jobs []*job
	add := func(what, tool string, args func() []string) error {
		path, err := b.tool(tool)
		jobs = append(jobs, &job{what: what, tool: tool, command: func() *exec.Cmd { return exec.Command(path, args()...) }})
		return err
	}
	var errs []error
	for _, tool := range []string{"stoactl", "etcdctl"} {
		errs = append(errs, add("snapshot save", tool, func() []string {
			return []string{"--endpoints=" + b.server.ClientURL, "snapshot", "save", b.file}
		}))
	}
	for _, tool := range []string{"stoactl", "etcdutl"} {
		errs = append(errs, add("snapshot status", tool, func() []string { return []string{"snapshot", "status", b.file} }))
	}
	for _, tool := range []string{"stoactl", "etcdutl"} {
		errs = append(errs, add("snapshot restore", tool, func() []string {
			os.RemoveAll(b.restored(tool)) // of the round before
			return []string{"snapshot", "restore", b.file, "--data-dir=" + b.restored(tool)}
		}))
	}
	return jobs, errors.Join(errs...)
}

func (b *bench) restored(tool string) string { return filepath.Join(b.dir, tool) }

func (j *job) measure() error {
	cmd := j.command()
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	j.results = append(j.results, result{time.Since(began), cpu, usage.Maxrss << 10})
	return nil
}

func median[T int64 | time.Duration](all []result, of func(result) T) T {
	var v []T
	for _, r := range all {
		v = append(v, of(r))
	}
	slices.Sort(v)
	return v[len(v)/2]
}

func (b *bench) print(jobs []*job, keys int) {
	info, err := os.Stat(b.file)
	if err == nil {
		fmt.Printf("%d keys, a file of %d MiB, medians of %d rounds\n\n", keys, info.Size()>>20, len(jobs[0].results))
	}
	fmt.Println("| | tool | time | CPU | peak resident memory |\n| --- | --- | --- | --- | --- |")
	for _, j := range jobs {
		fmt.Printf("| %s | %s | %.1f s | %.1f s | %d MiB |\n", j.what, j.tool,
			median(j.results, func(r result) time.Duration { return r.took }).Seconds(),
			median(j.results, func(r result) time.Duration { return r.cpu }).Seconds(),
			median(j.results, func(r result) int64 { return r.peak })>>20)
	}
}

// verify starts servers on what was restored.
func (b *bench) verify() error {
	for kind, tool := range map[string]string{"stoa": "stoactl", "etcd": "etcdutl"} {
		c, err := b.start(kind, b.restored(tool))
		if err != nil {
			return err
		}
		sum, _, err := hashKV(c.Servers[0], b.revision)
		if err = errors.Join(err, c.Close()); err != nil {
			return err
		}
		if sum != b.hash {
			return fmt.Errorf("HashKV of %s after the restore is %d, and was %d", kind, sum, b.hash)
		}
	}
	fmt.Printf("\nHashKV at revision %d is %d in the saved server and in those restored.\n", b.revision, b.hash)
	return nil
}

// start starts one server on a data directory.
func (b *bench) start(kind, dataDir string, args ...string) (*process.Cluster, error) {
	bin, err := process.Choose(kind)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.dir, kind)
	if err != nil {
		return nil, err
	}
	return process.Start(context.Background(), process.Spec{
		Binary: bin, Dir: dir, Timeout: time.Minute, Args: append(args, "--data-dir="+dataDir),
	})
}

func buildStoactl(dir string) (string, error) {
	root, err := process.Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "stoactl.bin")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/stoactl")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building stoactl: %w\n%s", err, out)
	}
	return path, nil
}

func connect(s *process.Server) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{s.ClientURL}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
}

func hashKV(s *process.Server, rev int64) (sum uint32, at int64, err error) {
	cli, err := connect(s)
	if err != nil {
		return 0, 0, err
	}
	defer cli.Close()
	h, err := cli.HashKV(context.Background(), s.ClientURL, rev)
	if err != nil {
		return 0, 0, fmt.Errorf("asking for HashKV: %w", err)
	}
	return h.Hash, h.HashRevision, nil
}
