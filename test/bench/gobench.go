package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/stoa-kv/stoa/test/process"
)

// goBench is a package's Go benchmarks, built once.
type goBench struct{ binary, dir string }

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

// run runs benchmarks and returns their results by name, without the number of cores.
// A name may be an expression, without what all names begin with.
func (g *goBench) run(name string, args ...string) (map[string]benchLine, error) {
	exact := "^Benchmark" + strings.ReplaceAll(name, "/", "$/^") + "$"
	cmd := exec.Command(g.binary, append([]string{"-test.run=^$", "-test.bench=" + exact}, args...)...)
	cmd.Dir = g.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("running %s: %w\n%s", name, err, out)
	}
	return readBench(string(out))
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
	cores  float64            // that were at work, on average
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
	profileHead = regexp.MustCompile(`Total samples = \S+ \(([\d.]+)%\)`)
	profileLine = regexp.MustCompile(`(?m)^\s*\S+\s+\S+%\s+\S+%\s+\S+\s+([\d.]+)%\s+(.+?)(?: \(inline\))?$`)
)

func readProfile(top string) (*profile, error) {
	head := profileHead.FindStringSubmatch(top)
	if head == nil {
		return nil, errors.New("reading a profile: it doesn't say how much CPU time was used")
	}
	percent, err := strconv.ParseFloat(head[1], 64)
	if err != nil {
		return nil, fmt.Errorf("reading a profile: %w", err)
	}
	p := &profile{cores: percent / 100, shares: map[string]float64{}}
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
