package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// runner is what the workers share.
type runner struct {
	dir, binary, commit string
	began               time.Time

	mu   sync.Mutex
	done map[string]*tally // by the name of a kind
}

type tally struct{ seeds, failures int }

// failure is a seed that fails.
type failure struct {
	seed uint64
	what string
}

// told is how package sim tells a failure.
var told = regexp.MustCompile(`(?m)seed (\d+) \(\d+ servers, \d+ partitions\): (.*)$`)

// seeds runs some, and returns those that failed; all is what the process printed. A process that ends in another
// way counts for its first seed.
func (r *runner) seeds(ctx context.Context, k kind, first uint64, n int, more ...string) (failed []failure, all string) {
	args := append([]string{"-test.run=^" + k.test + "$", "-test.timeout=60m", "-seed=" + strconv.FormatUint(first, 10), "-runs=" + strconv.Itoa(n)}, k.flags...)
	out, err := exec.CommandContext(ctx, r.binary, append(args, more...)...).CombinedOutput()
	if err == nil {
		return nil, string(out)
	}
	for _, m := range told.FindAllStringSubmatch(string(out), -1) {
		if seed, err := strconv.ParseUint(m[1], 10, 64); err == nil {
			failed = append(failed, failure{seed, m[2]})
		}
	}
	if len(failed) == 0 {
		failed = []failure{{first, fmt.Sprintf("%d seeds from here: %v", n, err)}}
	}
	return failed, string(out)
}

// note counts a block, and keeps what has failed.
func (r *runner) note(ctx context.Context, k kind, failed []failure, out string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done[k.name] == nil {
		r.done[k.name] = &tally{}
	}
	r.done[k.name].seeds += block
	r.done[k.name].failures += len(failed)
	for _, f := range failed {
		fmt.Printf("FAILED %s, seed %d: %s\n", k.name, f.seed, f.what)
		_, events := r.seeds(ctx, k, f.seed, 1, "-events")
		kept := filepath.Join(r.dir, fmt.Sprintf("%d.log", f.seed))
		if err := os.WriteFile(kept, []byte(out+events), 0o644); err != nil {
			return err
		}
		if err := r.append(k, f); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) corpus() string { return filepath.Join(r.dir, "corpus.tsv") }

func (r *runner) append(k kind, f failure) error {
	file, err := os.OpenFile(r.corpus(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "%s\t%d\t%s\t%s\n", k.name, f.seed, r.commit, f.what)
	return errors.Join(err, file.Close())
}

// again runs the seeds that have failed before.
func (r *runner) again(ctx context.Context) error {
	file, err := os.Open(r.corpus())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() && ctx.Err() == nil {
		k, f, err := parse(lines.Text())
		if err != nil {
			return fmt.Errorf("%s: %w", r.corpus(), err)
		}
		verdict := "passes now"
		if failed, _ := r.seeds(ctx, k, f.seed, 1); len(failed) > 0 {
			verdict = "still fails: " + failed[0].what
		}
		fmt.Printf("%s, seed %d (%s): %s\n", k.name, f.seed, f.what, verdict)
	}
	return lines.Err()
}

// parse reads a line of the corpus.
func parse(line string) (kind, failure, error) {
	fields := strings.SplitN(line, "\t", 4)
	if len(fields) != 4 {
		return kind{}, failure{}, fmt.Errorf("%q isn't kind, seed, commit and what failed, with tabs between", line)
	}
	seed, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return kind{}, failure{}, fmt.Errorf("%q: %w", line, err)
	}
	for _, k := range kinds {
		if k.name == fields[0] {
			return k, failure{seed, fields[3]}, nil
		}
	}
	return kind{}, failure{}, fmt.Errorf("%q: there is no such kind", line)
}

func (r *runner) failures() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.done {
		n += t.failures
	}
	return n
}

func (r *runner) table() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	took := time.Since(r.began)
	var s strings.Builder
	fmt.Fprintf(&s, "\n%s, after %v:\n\n| kind | seeds | failed | seeds per hour |\n| --- | --- | --- | --- |\n", r.commit, took.Round(time.Second))
	var all tally
	row := func(name string, t tally) {
		fmt.Fprintf(&s, "| %s | %d | %d | %.0f |\n", name, t.seeds, t.failures, float64(t.seeds)/took.Hours())
	}
	for _, k := range kinds {
		if t := r.done[k.name]; t != nil {
			row(k.name, *t)
			all.seeds, all.failures = all.seeds+t.seeds, all.failures+t.failures
		}
	}
	row("all", all)
	return s.String()
}
