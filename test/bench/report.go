package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/stoa-kv/stoa/test/plot"
	"github.com/stoa-kv/stoa/test/process"
)

// report holds what was measured.
type report struct {
	plan   *plan
	goals  func(c cell, own, base []sample) []verdict // of the second subject, and of others unless only
	only   bool
	cells  []cell
	memory []memory
}

type memory struct {
	nodes   int
	subject string
	bytes   int64 // resident, per server, at the end
}

func ratioText(r float64) string { return fmt.Sprintf("%.2fx", r) }

// name says what a cell is about.
func (c cell) name() string {
	op := map[string]string{"put": "put", "get": "linearizable get", "sget": "serializable get"}[c.op]
	return fmt.Sprintf("%d node%s, %s, %d client%s", c.nodes, plural(c.nodes), op, c.clients, plural(c.clients))
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

func (s sample) String() string {
	return fmt.Sprintf("%.0f/s, p50 %s, p99 %s, CPU %s (load generator %s)", s.rate, round(s.p50), round(s.p99), round(s.cpu), round(s.load))
}

func round(d time.Duration) time.Duration {
	switch {
	case d > 100*time.Millisecond:
		return d.Round(time.Millisecond)
	case d > time.Millisecond:
		return d.Round(10 * time.Microsecond)
	case d > 100*time.Microsecond:
		return d.Round(time.Microsecond)
	case d > time.Microsecond:
		return d.Round(100 * time.Nanosecond)
	}
	return d
}

// line tells of a cell as soon as it is measured.
func (r *report) line(w io.Writer, c cell) {
	fmt.Fprintf(w, "%s\n", c.name())
	for i, s := range r.plan.subjects {
		fmt.Fprintf(w, "  %-12s %v\n", s.name, median(c.samples[i]))
	}
}

// rows are the lines of the table, the heading first, and what they say of the goals.
func (r *report) rows() (rows [][]string, verdicts []verdict) {
	rows = [][]string{{"work", "server", "ops/s", "p50", "p99", "CPU/op", "load CPU/op", "ops ratio", "CPU ratio", "p50 ratio", "p99 ratio", "goal"}}
	for _, c := range r.cells {
		base := c.samples[0]
		for i, s := range r.plan.subjects {
			m := median(c.samples[i])
			row := []string{c.name(), s.name, fmt.Sprintf("%.0f", m.rate), round(m.p50).String(), round(m.p99).String(), round(m.cpu).String(), round(m.load).String()}
			if i == 0 {
				rows = append(rows, append(row, "", "", "", "", ""))
				continue
			}
			own := c.samples[i]
			for _, of := range []func(sample) float64{byRate, byCPU, byP50, byP99} {
				row = append(row, compare(own, base, of).String())
			}
			var judged []verdict
			if i == 1 || !r.only {
				judged = r.goals(c, own, base)
			}
			rows = append(rows, append(row, verdictText(judged)))
			if i == 1 {
				verdicts = append(verdicts, judged...)
			}
		}
	}
	return rows, verdicts
}

// section is the report as a part of the document.
func (r *report) section() section {
	p := r.plan
	s := section{charts: r.charts(), text: fmt.Sprintf("%d interleaved rounds of %v of each cell, %d keys, values of %d B; "+
		"clients share at most %d connections and are spread over all servers. Ratios are to %s: the median of the rounds, each over the round beside it, and their spread. "+
		"A latency within the width of a bucket of the histogram, 3 %%, counts as the same.",
		p.rounds, p.length, p.keys, p.value, maxConns, p.subjects[0].name)}
	s.rows, s.verdicts = r.rows()
	for _, m := range r.memory {
		s.notes = append(s.notes, fmt.Sprintf("Resident memory at the end, %d node%s, %s: %d MiB per server.", m.nodes, plural(m.nodes), m.subject, m.bytes>>20))
	}
	return s
}

// charts draw, for each cluster size, throughput, CPU time and latency against the
// number of clients.
func (r *report) charts() map[string]plot.Chart {
	if len(r.plan.clients) < 3 {
		return nil
	}
	all := map[string]plot.Chart{}
	for _, nodes := range r.plan.nodes {
		panels := []plot.Panel{
			{Title: "throughput", X: "clients", Y: "operations/s"},
			{Title: "CPU time of all servers", X: "clients", Y: "µs per operation"},
			{Title: "latency against throughput", X: "operations/s", Y: "median latency, ms"},
		}
		for _, c := range r.cells {
			if c.nodes != nodes || c.op == "sget" {
				continue
			}
			for i, s := range r.plan.subjects {
				m, name := median(c.samples[i]), s.name+", "+c.op
				addPoint(&panels[0], name, plot.Point{X: float64(c.clients), Y: m.rate})
				addPoint(&panels[1], name, plot.Point{X: float64(c.clients), Y: float64(m.cpu) / float64(time.Microsecond)})
				addPoint(&panels[2], name, plot.Point{X: m.rate, Y: float64(m.p50) / float64(time.Millisecond)})
			}
		}
		title := fmt.Sprintf("Unary calls, %d node%s, %d B", nodes, plural(nodes), r.plan.value)
		all[fmt.Sprintf("bench-unary-%d.svg", nodes)] = plot.Chart{Title: title, Panels: panels}
	}
	return all
}

// machine describes what the figures were measured on.
func machine() string {
	return fmt.Sprintf("%s, fdatasync of 4 KiB %v at the median", process.Machine(), syncTime())
}

// syncTime measures the disk that the servers' data lies on.
func syncTime() time.Duration {
	f, err := os.Create(filepath.Join(os.TempDir(), fmt.Sprintf("stoa-bench-sync-%d", os.Getpid())))
	if err != nil {
		return 0
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var times []time.Duration
	for i := range 100 {
		f.WriteAt(make([]byte, 4096), int64(i)*4096)
		start := time.Now()
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return 0
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	return times[len(times)/2].Round(10 * time.Microsecond)
}
