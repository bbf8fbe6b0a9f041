package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stoa-kv/stoa/test/sim/cover/overlay"
)

// kind is a way to run seeds.
type kind struct {
	name  string
	test  string
	flags []string
}

// row names it in the table.
func (k kind) row(guided bool) string {
	if guided {
		return k.name + ", guided"
	}
	return k.name
}

// kinds are all, in their turn.
var kinds = []kind{
	{"as the seed says", "TestSim", nil},
	{"members", "TestSim", []string{"-members"}},
	{"moves and numbers of partitions", "TestSim", []string{"-balance", "-resize"}},
	{"checks", "TestSim", []string{"-checks"}},
	{"users", "TestSim", []string{"-users"}},
	{"everything", "TestSim", []string{"-members", "-balance", "-resize", "-checks", "-users", "-versions"}},
	{"versions", "TestSim", []string{"-versions"}},
	{"forced", "TestForce", nil},
	{"some of all", "TestSim", []string{"-swarm"}},
	{"forced, some of all", "TestForce", []string{"-swarm"}},
	{"forced, everything", "TestForce", []string{"-members", "-balance", "-resize", "-checks", "-users", "-versions"}},
}

// block is how many seeds a process runs: some seconds.
const block = 100

func main() {
	dir := flag.String("dir", "bin/sim", "where the corpus, and what failing seeds did, is kept")
	length := flag.Duration("for", 0, "how long to run (0: until stopped by a signal)")
	workers := flag.Int("workers", runtime.NumCPU(), "processes at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *length)
		defer cancel()
	}
	failures, err := run(ctx, *dir, *workers)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "forever:", err)
		os.Exit(2)
	case failures > 0:
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, workers int) (failures int, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	r := &runner{dir: dir, binary: filepath.Join(dir, "sim.test"), began: time.Now(), done: map[string]*tally{}}
	if err := r.build(ctx); err != nil {
		return 0, fmt.Errorf("building the simulation: %w", err)
	}
	if r.commit, err = commit(ctx); err != nil {
		return 0, err
	}
	if err := r.again(ctx); err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	errs := make([]error, workers)
	for i := range errs {
		all.Go(func() {
			if errs[i] = r.work(ctx, i); errs[i] != nil {
				stop() // what one can't keep, the others can't either
			}
		})
	}
	go r.tell(ctx)
	all.Wait()
	fmt.Print(r.table())
	return r.failures(), errors.Join(errs...)
}

// build builds the simulation, and once more for runs that a guide chooses.
func (r *runner) build(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "stoa-sim-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	noted, err := overlay.Write(root, dir, nil, nil)
	if err != nil {
		return err
	}
	for _, flags := range [][]string{{"-o", r.binary}, {"-o", r.noted(), "-vet=off", "-overlay", noted}} {
		cmd := exec.CommandContext(ctx, "go", append(append([]string{"test", "-c"}, flags...), "./test/sim")...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	return nil
}

func commit(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "", fmt.Errorf("asking git for the commit: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// guided is how often a block of runs is one that a guide chooses.
const guided = 4

// work runs one block after the other. Each worker has guides of its own.
func (r *runner) work(ctx context.Context, worker int) error {
	for i := worker; ctx.Err() == nil; i++ {
		k := kinds[i%len(kinds)]
		guide := ""
		if i/len(kinds)%guided == guided-1 {
			guide = filepath.Join(r.dir, fmt.Sprintf("guide-%s-%d", strings.ReplaceAll(k.name, " ", "-"), worker))
		}
		failed, out := r.block(ctx, k, rand.Uint64N(1<<40), guide)
		if ctx.Err() != nil {
			return nil // it was cut off
		}
		if err := r.note(ctx, k, guide != "", failed, out); err != nil {
			return err
		}
	}
	return nil
}

const tellEvery = 10 * time.Minute

func (r *runner) tell(ctx context.Context) {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			fmt.Print(r.table())
		}
	}
}
