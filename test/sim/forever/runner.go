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

// start is where a run begins: its seed, and its turns as flag -turns has them.
type start struct {
	seed  uint64
	turns string
}

func (s start) String() string { return strings.TrimSpace(fmt.Sprint(s.seed, " ", s.turns)) }

// flags are those that repeat the run.
func (s start) flags() []string {
	flags := []string{"-seed=" + strconv.FormatUint(s.seed, 10), "-runs=1"}
	if s.turns != "" {
		flags = append(flags, "-turns="+s.turns)
	}
	return flags
}

// failure is a run that fails.
type failure struct {
	start
	what string
}

// told is how package sim tells a failure.
var told = regexp.MustCompile(`(?m)seed (\d+)(?: with -turns=(\S+))? \(\d+ servers, \d+ partitions\): (.*)$`)

// block runs a number of seeds from one on, or, with a guide, runs that it chooses.
func (r *runner) block(ctx context.Context, k kind, first uint64, guide string) (failed []failure, all string) {
	flags := []string{"-seed=" + strconv.FormatUint(first, 10), "-runs=" + strconv.Itoa(block)}
	if guide == "" {
		return r.run(ctx, r.binary, k, start{seed: first}, flags)
	}
	return r.run(ctx, r.noted(), k, start{seed: first}, append(flags, "-guide="+guide))
}

// repeat makes a run once more.
func (r *runner) repeat(ctx context.Context, k kind, s start, more ...string) (failed []failure, all string) {
	return r.run(ctx, r.binary, k, s, append(s.flags(), more...))
}

// run makes runs in a process of their own, and returns those that failed; all is what the process printed. A process that
// ends in another way counts for its first run.
func (r *runner) run(ctx context.Context, binary string, k kind, first start, flags []string) (failed []failure, all string) {
	args := append([]string{"-test.run=^" + k.test + "$", "-test.timeout=60m"}, k.flags...)
	process := exec.CommandContext(ctx, binary, append(args, flags...)...)
	process.Env = append(thrifty(), os.Environ()...)
	out, err := process.CombinedOutput()
	if err == nil {
		return nil, string(out)
	}
	for _, m := range told.FindAllStringSubmatch(string(out), -1) {
		if seed, err := strconv.ParseUint(m[1], 10, 64); err == nil {
			failed = append(failed, failure{start{seed, m[2]}, m[3]})
		}
	}
	if len(failed) == 0 {
		failed = []failure{{first, fmt.Sprintf("the runs from here: %v", err)}}
	}
	return failed, string(out)
}

// noted is the simulation with package cover's notes compiled in.
func (r *runner) noted() string { return r.binary + ".noted" }

// thrifty is the environment in which a process takes the least CPU time. A run is one goroutine, beside which the
// collector would use the cores of the others, and what it collects seldom is up to 0.3 GB a process.
func thrifty() []string { return []string{"GOGC=400", "GOMAXPROCS=1"} }

// note counts a block, and keeps what has failed.
func (r *runner) note(ctx context.Context, k kind, guided bool, failed []failure, out string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := k.row(guided)
	if r.done[name] == nil {
		r.done[name] = &tally{}
	}
	r.done[name].seeds += block
	r.done[name].failures += len(failed)
	for _, f := range failed {
		fmt.Printf("FAILED %s, seed %v: %s\n", k.name, f.start, f.what)
		_, events := r.repeat(ctx, k, f.start, "-events")
		kept := filepath.Join(r.dir, strings.NewReplacer(" ", "-", ":", "-", ",", "-").Replace(f.start.String())+".log")
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
	_, err = fmt.Fprintf(file, "%s\t%v\t%s\t%s\n", k.name, f.start, r.commit, f.what)
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
		if failed, _ := r.repeat(ctx, k, f.start); len(failed) > 0 {
			verdict = "still fails: " + failed[0].what
		}
		fmt.Printf("%s, seed %v (%s): %s\n", k.name, f.start, f.what, verdict)
	}
	return lines.Err()
}

// parse reads a line of the corpus.
func parse(line string) (kind, failure, error) {
	fields := strings.SplitN(line, "\t", 4)
	if len(fields) != 4 {
		return kind{}, failure{}, fmt.Errorf("%q isn't kind, seed, commit and what failed, with tabs between", line)
	}
	seed, turns, _ := strings.Cut(fields[1], " ")
	n, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		return kind{}, failure{}, fmt.Errorf("%q: %w", line, err)
	}
	for _, k := range kinds {
		if k.name == fields[0] {
			return k, failure{start{n, turns}, fields[3]}, nil
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
		for _, name := range []string{k.row(false), k.row(true)} {
			if t := r.done[name]; t != nil {
				row(name, *t)
				all.seeds, all.failures = all.seeds+t.seeds, all.failures+t.failures
			}
		}
	}
	row("all", all)
	return s.String()
}
