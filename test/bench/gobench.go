package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoa-kv/stoa/test/process"
)

// goBench is a package's Go benchmarks, built once.
type goBench struct {
	binary, dir string
	temp        string // where it puts temporary files; "": the system's default
}

// in is the same, with another directory for temporary files.
func (g *goBench) in(temp string) *goBench { return &goBench{binary: g.binary, dir: g.dir, temp: temp} }

// buildBench builds the test binary of a package into a directory.
func buildBench(pkg, dir string) (*goBench, error) {
	root, err := process.Root()
	if err != nil {
		return nil, err
	}
	g := &goBench{binary: filepath.Join(dir, filepath.Base(pkg)+".test"), dir: dir}
	cmd := exec.Command("go", "test", "-c", "-o", g.binary, pkg)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the benchmarks of %s: %w\n%s", pkg, err, out)
	}
	return g, nil
}

// benchLine is what one benchmark measured.
type benchLine struct{ ns, allocs float64 }

// run runs benchmarks, bound to so many cores at most, and returns their results by
// name, without the number of cores. A name may be an expression, without what all
// names begin with.
func (g *goBench) run(cores int, name string, args ...string) (map[string]benchLine, error) {
	cpus, err := usable()
	if err != nil {
		return nil, err
	}
	return g.runOn(cpus[:min(cores, len(cpus))], name, args...)
}

// runOn is run on the cores that have these numbers.
func (g *goBench) runOn(cpus []int, name string, args ...string) (map[string]benchLine, error) {
	exact := "^Benchmark" + strings.ReplaceAll(name, "/", "$/^") + "$"
	cmd := exec.Command(g.binary, append([]string{"-test.run=^$", "-test.bench=" + exact, "-test.cpu=" + strconv.Itoa(len(cpus))}, args...)...)
	cmd.Dir = g.dir
	if g.temp != "" {
		cmd.Env = append(os.Environ(), "TMPDIR="+g.temp)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := bound(cpus, cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return nil, fmt.Errorf("running %s: %w\n%s", name, err, &out)
	}
	return readBench(out.String())
}

// usable is the numbers of the cores that this process may use.
func usable() (cpus []int, err error) {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return nil, fmt.Errorf("asking which cores there are: %w", err)
	}
	for cpu := 0; len(cpus) < may.Count(); cpu++ {
		if may.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// bound starts a process that may use only some cores. It has that from the thread
// that starts it.
func bound(cpus []int, start func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, few unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("binding a process to cores %v: %w", cpus, err)
	}
	for _, cpu := range cpus {
		few.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &few); err != nil {
		return fmt.Errorf("binding a process to cores %v: %w", cpus, err)
	}
	return errors.Join(start(), unix.SchedSetaffinity(0, &before))
}

var benchResult = regexp.MustCompile(`(?m)^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op(?:.*?\s(\d+) allocs/op)?`)

func readBench(out string) (map[string]benchLine, error) {
	all := map[string]benchLine{}
	for _, m := range benchResult.FindAllStringSubmatch(out, -1) {
		ns, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, fmt.Errorf("reading the result of %s: %w", m[1], err)
		}
		allocs, _ := strconv.ParseFloat(m[3], 64) // may not be there
		all[m[1]] = benchLine{ns: ns, allocs: allocs}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no benchmark has a result:\n%s", out)
	}
	return all, nil
}

// profile is what `go tool pprof -top -cum` says.
type profile struct {
	total  float64            // CPU time, in seconds
	shares map[string]float64 // of all samples, by function, with what it calls
}

func topOf(g *goBench, file string) (*profile, error) {
	out, err := exec.Command("go", "tool", "pprof", "-top", "-cum", "-nodecount=100000", "-nodefraction=0", g.binary, file).Output()
	if err != nil {
		return nil, fmt.Errorf("reading the profile %s: %w", file, err)
	}
	return readProfile(string(out))
}

var (
	profileHead = regexp.MustCompile(`Total samples = (\S+)`)
	profileLine = regexp.MustCompile(`(?m)^\s*\S+\s+\S+%\s+\S+%\s+\S+\s+([\d.]+)%\s+(.+?)(?: \(inline\))?$`)
)

func readProfile(top string) (*profile, error) {
	head := profileHead.FindStringSubmatch(top)
	if head == nil {
		return nil, errors.New("reading a profile: it doesn't say how much CPU time was used")
	}
	total, err := time.ParseDuration(strings.Replace(head[1], "mins", "m", 1))
	if err != nil {
		return nil, fmt.Errorf("reading a profile: %w", err)
	}
	p := &profile{total: total.Seconds(), shares: map[string]float64{}}
	for _, m := range profileLine.FindAllStringSubmatch(top, -1) {
		share, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return nil, fmt.Errorf("reading a profile: %w", err)
		}
		p.shares[m[2]] = share / 100
	}
	return p, nil
}

// share is that of the function whose name ends so.
func (p *profile) share(function string) float64 {
	for name, s := range p.shares {
		if strings.HasSuffix(name, function) {
			return s
		}
	}
	return 0
}
