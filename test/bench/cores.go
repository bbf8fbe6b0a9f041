package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/stoa-kv/stoa/test/plot"
	"github.com/stoa-kv/stoa/test/process"
)

// engine is a configuration in which the engine is measured.
type engine struct {
	parts, cores int    // cores that the process may use
	dir          string // of its files; "": where temporary files go
}

// The first two are those of the goal. With their files in memory they show what of it
// is waiting for the disk.
var engines = []engine{{1, 1, ""}, {2, 2, ""}, {2, 1, ""}, {1, 2, ""}, {1, 1, inMemory}, {2, 2, inMemory}}

// inMemory is a directory that isn't on a disk.
const inMemory = "/dev/shm"

func (e engine) String() string {
	if e.dir == "" {
		return strconv.Itoa(e.parts)
	}
	return fmt.Sprintf("%d, files in memory", e.parts)
}

// moreCores are those that the model speaks of.
var moreCores = []int{1, 2, 4, 8, 16, 32, 64}

// serialSections are the goroutines of which a server has one, for any number
// of partitions: an operation's time in one of them bounds what any number of
// cores can do. A partition's own loop is one of P.
var serialSections = []struct{ name, function string }{
	{"writing the log", "node.(*disk).run"},
	{"flushing to the file", "node.(*Node).flushLoop"},
	{"the watch hub", "watch.(*Hub).Run"},
}

const partitionLoop = "replica.(*Replica).Work"

// negligible is the part of an operation's time below which a goroutine isn't on its
// way, but did something else meanwhile.
const negligible = 0.02

// mostPartitions is how many a cluster can have.
const mostPartitions = 16

// measureCores runs the engine without gRPC: node's Go benchmarks.
func measureCores(p *plan) (s section, err error) {
	dir, err := process.TempDir("bench-cores")
	if err != nil {
		return s, err
	}
	defer os.RemoveAll(dir)
	g, err := buildBench("./internal/node", dir)
	if err != nil {
		return s, err
	}
	s.rows = [][]string{{"work", "partitions", "cores", "ops/s", "per operation", "allocations", "to P = 1 on 1 core"}}
	control := make([][]float64, 2)
	for range p.rounds {
		for i := range control {
			rate, err := spin(i + 1)
			if err != nil {
				return s, err
			}
			control[i] = append(control[i], rate)
		}
	}
	s.notes = append(s.notes, fmt.Sprintf("The capacity of the machine itself: arithmetic in registers on 2 cores beside 1: %v.", ratioOf(control[1], control[0])))
	for _, op := range []string{"put", "get"} {
		got, err := engineRounds(p, g, op)
		if err != nil {
			return s, err
		}
		rates := got.rates
		s.rows = append(s.rows, got.rows(op)...)
		two := ratioOf(rates[1], rates[0])
		s.notes = append(s.notes, fmt.Sprintf("%s, relative to the machine's capacity: 2 cores with P = 2 do %v of what two engines with P = 1 on a core each do, which share nothing but the machine.",
			op, got.ofMachine()))
		if op == "put" {
			s.notes = append(s.notes, fmt.Sprintf("put, without waiting for the disk (files in %s): 2 cores with P = 2 do %v of what 1 core with P = 1 does so.", inMemory, got.withoutDisk()))
		}
		s.verdicts = append(s.verdicts, atLeast(fmt.Sprintf("cores, engine without gRPC, %s: 2 cores with P = 2 beside 1 core with P = 1", op), two, 1.8))
		if err := s.model(g, op, p.length, middle(rates[0]), middle(rates[0])*two.mid); err != nil {
			return s, err
		}
	}
	s.text = fmt.Sprintf("`BenchmarkEngine` of internal/node: 512 goroutines call a server's engine, without gRPC: log, groups, stores, the waiting for answers; values of 256 B. One core is "+
		"one that the process is bound to. Two engines that share nothing are two processes at the same time, each with one partition, bound to a core of its own: what they "+
		"do together is the machine's capacity. %d interleaved rounds of about %v on one core.\n\n"+
		"The model is Gunther's Universal Scalability Law. Its serial part is measured: of the goroutines of which a server has one, the one that takes most CPU time of an operation, from a profile "+
		"of P = 2 on 2 cores. What two cores lack beyond that is taken as crosstalk, which grows with the square of the cores: the pessimistic line. The optimistic one leaves crosstalk out. "+
		"Neither goes above what the serial goroutine, or the loops of %d partitions, can do. Nothing above 2 cores has been measured here.", p.rounds, p.length, mostPartitions)
	return s, nil
}

// spin is how many steps of arithmetic per second so many cores do together: twice as
// many for two, unless they share more than memory or others use them.
func spin(cores int) (float64, error) {
	const length = 300 * time.Millisecond
	steps := make([]int, cores)
	errs := make([]error, cores)
	began := time.Now()
	each(cores, func(i int) {
		x := uint64(i)
		for time.Since(began) < length {
			for range 100_000 {
				x = x*6364136223846793005 + 1442695040888963407
			}
			steps[i]++
		}
		if x == 0 { // it isn't, but the compiler doesn't know
			errs[i] = errors.New("measuring the machine: the generator has come to an end")
		}
	})
	sum := 0
	for _, n := range steps {
		sum += n
	}
	return float64(sum) / time.Since(began).Seconds(), errors.Join(errs...)
}

func nanoseconds(ns float64) time.Duration { return round(time.Duration(ns)) }

func ones(n int) []float64 {
	all := make([]float64, n)
	for i := range all {
		all[i] = 1
	}
	return all
}

// engineRates are operations per second, of each round.
type engineRates struct {
	rates  [][]float64 // by engine
	allocs []float64   // of an operation
	apart  []float64   // of two engines that share nothing, together
}

// ofMachine is the engine with two partitions on two cores beside what these give.
func (r engineRates) ofMachine() ratio { return ratioOf(r.rates[1], r.apart) }

// withoutDisk is what the goal asks, files being in memory.
func (r engineRates) withoutDisk() ratio { return ratioOf(r.rates[5], r.rates[4]) }

func (r engineRates) rows(op string) (rows [][]string) {
	row := func(parts, cores string, rates []float64, allocs float64) []string {
		rate := middle(rates)
		return []string{op, parts, cores, fmt.Sprintf("%.0f", rate), round(time.Duration(float64(time.Second) / rate)).String(),
			fmt.Sprintf("%.0f", allocs), ratioOf(rates, r.rates[0]).String()}
	}
	for i, e := range engines {
		rows = append(rows, row(e.String(), strconv.Itoa(e.cores), r.rates[i], r.allocs[i]))
	}
	return append(rows, row("two engines that share nothing, 1 each", "1 each", r.apart, r.allocs[0]))
}

func engineRounds(p *plan, g *goBench, op string) (r engineRates, err error) {
	r.rates, r.allocs = make([][]float64, len(engines)), make([]float64, len(engines))
	first := fmt.Sprintf("Engine/%s/P=%d", op, engines[0].parts)
	got, err := g.run(engines[0].cores, first, "-test.benchtime=500ms")
	if err != nil {
		return r, err
	}
	if got[first].ns == 0 {
		return r, fmt.Errorf("%s has no result", first)
	}
	// The same number of operations for all: finding one for each would take longer
	// than measuring.
	benchtime := fmt.Sprintf("-test.benchtime=%dx", int(p.length.Seconds()*1e9/got[first].ns))
	for range p.rounds {
		for i, e := range engines {
			name := fmt.Sprintf("Engine/%s/P=%d", op, e.parts)
			got, err := g.in(e.dir).run(e.cores, name, benchtime)
			if err != nil {
				return r, err
			}
			line, ok := got[name]
			if !ok {
				return r, fmt.Errorf("%s has no result", name)
			}
			r.rates[i] = append(r.rates[i], 1e9/line.ns)
			r.allocs[i] = line.allocs
			fmt.Fprintf(os.Stderr, "%s on %d cores: %.0f/s\n", name, e.cores, 1e9/line.ns)
		}
		both, err := twoEngines(g, first, benchtime)
		if err != nil {
			return r, err
		}
		r.apart = append(r.apart, both)
		fmt.Fprintf(os.Stderr, "%s, two that share nothing: %.0f/s\n", first, both)
	}
	return r, nil
}

// twoEngines runs a benchmark twice at the same time, in two processes on a
// core each, and returns what both do per second. They have as many operations
// each, so that they run for about the same time.
func twoEngines(g *goBench, name, benchtime string) (sum float64, err error) {
	cpus, err := usable()
	if err != nil {
		return 0, err
	}
	lines, errs := make([]benchLine, 2), make([]error, 2)
	each(len(lines), func(i int) {
		got, err := g.runOn([]int{cpus[i%len(cpus)]}, name, benchtime)
		lines[i], errs[i] = got[name], err
		if err == nil && lines[i].ns == 0 {
			errs[i] = fmt.Errorf("%s has no result", name)
		}
	})
	for _, l := range lines {
		sum += 1e9 / l.ns
	}
	return sum, errors.Join(errs...)
}

// costs are the CPU time of an operation, of all and of what its goroutines spend.
type costs struct {
	all   float64 // ns
	of    map[string]float64
	loops float64
}

// costsOf profiles many operations on two cores, and takes away what getting ready
// for them costs: that of two operations.
func costsOf(g *goBench, name string, operations int) (costs, error) {
	var spent [2]*profile
	for i, n := range []int{operations, 2} {
		file := filepath.Join(g.dir, fmt.Sprintf("%d.prof", i))
		if _, err := g.run(2, name, fmt.Sprintf("-test.benchtime=%dx", n), "-test.cpuprofile="+file); err != nil {
			return costs{}, err
		}
		var err error
		if spent[i], err = topOf(g, file); err != nil {
			return costs{}, err
		}
	}
	net := func(of func(*profile) float64) float64 {
		return max(of(spent[0])-of(spent[1]), 0) * 1e9 / float64(operations)
	}
	c := costs{all: net(func(p *profile) float64 { return p.total }), of: map[string]float64{}}
	for _, sec := range serialSections {
		c.of[sec.name] = net(func(p *profile) float64 { return p.share(sec.function) * p.total })
	}
	c.loops = net(func(p *profile) float64 { return p.share(partitionLoop) * p.total })
	if c.all == 0 {
		return c, errors.New("the profile is empty")
	}
	return c, nil
}

// model extrapolates the costs on two cores to more.
func (s *section) model(g *goBench, op string, length time.Duration, one, two float64) error {
	c, err := costsOf(g, fmt.Sprintf("Engine/%s/P=2", op), int(two*length.Seconds()))
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%s, of %v CPU time per operation:", op, nanoseconds(c.all))
	first, most := "", 0.0
	for _, sec := range serialSections {
		if c.of[sec.name] < negligible*c.all {
			continue
		}
		text += fmt.Sprintf(" %s %v;", sec.name, nanoseconds(c.of[sec.name]))
		if c.of[sec.name] > most {
			first, most = sec.name, c.of[sec.name]
		}
	}
	text += fmt.Sprintf(" the partitions' loops %v;", nanoseconds(c.loops))
	if per := c.loops / mostPartitions; per > most {
		first, most = fmt.Sprintf("the loops of %d partitions", mostPartitions), per
	}
	u := fitUSL(one, two, most/c.all)
	text += fmt.Sprintf(" the rest is in parallel. Serial part %.3f, crosstalk %.4f.", u.serial, u.crosstalk)
	if most > 0 {
		text += fmt.Sprintf(" First to be busy all the time: %s, at %.0f/s.", first, 1e9/most)
	}
	s.notes = append(s.notes, text, "Model of "+op+": "+modelText(u))
	if s.charts == nil {
		s.charts = map[string]plot.Chart{"bench-cores.svg": {Title: "The engine on more cores: a model from 1 and 2"}}
	}
	chart := s.charts["bench-cores.svg"]
	panel := plot.Panel{Title: op, X: "cores", Y: "operations/s"}
	for _, n := range moreCores {
		addPoint(&panel, "with crosstalk", plot.Point{X: float64(n), Y: u.at(n)})
		addPoint(&panel, "without", plot.Point{X: float64(n), Y: u.optimistic().at(n)})
	}
	addPoint(&panel, "measured", plot.Point{X: 1, Y: one})
	addPoint(&panel, "measured", plot.Point{X: 2, Y: two})
	chart.Panels = append(chart.Panels, panel)
	s.charts["bench-cores.svg"] = chart
	return nil
}

func modelText(u usl) (text string) {
	for _, n := range moreCores {
		text += fmt.Sprintf("%d core%s %.0f–%.0f/s; ", n, plural(n), u.at(n), u.optimistic().at(n))
	}
	return text[:len(text)-2] + "."
}
