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
)

// kind is a way to run seeds.
type kind struct {
	name  string
	test  string
	flags []string
}

// kinds are all, in their turn.
var kinds = []kind{
	{"as the seed says", "TestSim", nil},
	{"members", "TestSim", []string{"-members"}},
	{"moves and numbers of partitions", "TestSim", []string{"-balance", "-resize"}},
	{"checks", "TestSim", []string{"-checks"}},
	{"users", "TestSim", []string{"-users"}},
	{"everything", "TestSim", []string{"-members", "-balance", "-resize", "-checks", "-users"}},
	{"forced", "TestForce", nil},
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
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", r.binary, "./test/sim").CombinedOutput(); err != nil {
		return 0, fmt.Errorf("building the simulation: %w\n%s", err, out)
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

func commit(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "", fmt.Errorf("asking git for the commit: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// work runs one block after the other.
func (r *runner) work(ctx context.Context, first int) error {
	for i := first; ctx.Err() == nil; i++ {
		k := kinds[i%len(kinds)]
		seed := rand.Uint64N(1 << 40)
		failed, out := r.seeds(ctx, k, seed, block)
		if ctx.Err() != nil {
			return nil // it was cut off
		}
		if err := r.note(ctx, k, failed, out); err != nil {
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
