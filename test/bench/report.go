package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/stoa-kv/stoa/test/process"
)

// report holds what was measured.
type report struct {
	plan   *plan
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
	}
	return d.Round(100 * time.Nanosecond)
}

// line tells of a cell as soon as it is measured.
func (r *report) line(w io.Writer, c cell) {
	fmt.Fprintf(w, "%s\n", c.name())
	for i, s := range r.plan.subjects {
		fmt.Fprintf(w, "  %-12s %v\n", s.name, median(c.samples[i]))
	}
}

// rows are the lines of the table, the heading first.
func (r *report) rows() [][]string {
	rows := [][]string{{"work", "server", "ops/s", "p50", "p99", "CPU/op", "load CPU/op", "ops ratio", "CPU ratio", "p50 ratio", "p99 ratio", "goal"}}
	for _, c := range r.cells {
		base := median(c.samples[0])
		for i, s := range r.plan.subjects {
			m := median(c.samples[i])
			row := []string{c.name(), s.name, fmt.Sprintf("%.0f", m.rate), round(m.p50).String(), round(m.p99).String(), round(m.cpu).String(), round(m.load).String()}
			if i == 0 {
				rows = append(rows, append(row, "", "", "", "", ""))
				continue
			}
			row = append(row, ratioText(m.rate/base.rate), ratioText(float64(m.cpu)/float64(base.cpu)),
				ratioText(float64(m.p50)/float64(base.p50)), ratioText(float64(m.p99)/float64(base.p99)))
			verdict := ""
			if asked, misses := goals(c.nodes, c.op, c.clients).met(base, m); asked {
				verdict = "met"
				if len(misses) > 0 {
					verdict = "missed: " + strings.Join(misses, ", ")
				}
			}
			rows = append(rows, append(row, verdict))
		}
	}
	return rows
}

// section is the report as a part of the document.
func (r *report) section() section {
	p := r.plan
	s := section{rows: r.rows(), text: fmt.Sprintf("%d interleaved rounds of %v of each cell, %d keys, values of %d B; "+
		"clients share at most %d connections and are spread over all servers. Ratios are to %s. "+
		"Goals, beside etcd: with 1,000 clients on 1 node puts ≥ 1.7x at ≤ 0.5 of the CPU, linearizable gets ≥ 1.3x at ≤ 0.65; "+
		"on 3 nodes puts ≥ 3.5x at ≤ 0.25 of the CPU, linearizable gets ≥ 2x at ≤ 0.4; with 1 client put and get no slower at p50 and p99 "+
		"(a latency within the width of a bucket of the histogram, 3 %%, counts as the same).",
		p.rounds, p.length, p.keys, p.value, maxConns, p.subjects[0].name)}
	for _, m := range r.memory {
		s.notes = append(s.notes, fmt.Sprintf("Resident memory at the end, %d node%s, %s: %d MiB per server.", m.nodes, plural(m.nodes), m.subject, m.bytes>>20))
	}
	return s
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
