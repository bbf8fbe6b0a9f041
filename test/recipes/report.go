package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/stoa-kv/stoa/test/plot"
	"github.com/stoa-kv/stoa/test/sheet"
)

// report holds what was measured.
type report struct {
	plan    *plan
	started time.Time
	machine string // as it was at the start
	cells   []cell
	skipped []string
}

func (r *report) skip(what string, why error) {
	if line := fmt.Sprintf("%s: %v", what, why); !slices.Contains(r.skipped, line) {
		r.skipped = append(r.skipped, line)
	}
}

func (r *report) cell(nodes int, recipe string, clients int) (cell, bool) {
	for _, c := range r.cells {
		if c.nodes == nodes && c.recipe == recipe && c.clients == clients {
			return c, true
		}
	}
	return cell{}, false
}

// median takes the median of every figure by itself.
func median(s []sample) sample {
	mid := func(of func(sample) float64) float64 {
		values := make([]float64, len(s))
		for i := range s {
			values[i] = of(s[i])
		}
		slices.Sort(values)
		return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
	}
	duration := func(of func(sample) time.Duration) time.Duration {
		return time.Duration(mid(func(s sample) float64 { return float64(of(s)) }))
	}
	return sample{
		rate:    mid(func(s sample) float64 { return s.rate }),
		p50:     duration(func(s sample) time.Duration { return s.p50 }),
		p99:     duration(func(s sample) time.Duration { return s.p99 }),
		calls:   mid(func(s sample) float64 { return s.calls }),
		retries: mid(func(s sample) float64 { return s.retries }),
		sent:    mid(func(s sample) float64 { return s.sent }),
		cpu:     duration(func(s sample) time.Duration { return s.cpu }),
		load:    duration(func(s sample) time.Duration { return s.load }),
	}
}

func ratioText(r float64) string {
	if r >= 10 {
		return fmt.Sprintf("%.1fx", r)
	}
	return fmt.Sprintf("%.2fx", r)
}

func nodesText(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// line tells of a cell as soon as it is measured.
func (r *report) line(w io.Writer, c cell) {
	fmt.Fprintf(w, "%s, %s, %d clients\n", nodesText(c.nodes), c.recipe, c.clients)
	for _, s := range r.plan.subjects {
		if len(c.samples[s]) == 0 {
			continue
		}
		m := median(c.samples[s])
		fmt.Fprintf(w, "  %-20s %8.0f/s  p50 %-9v p99 %-9v calls %-6.1f retries %-6.1f sent %-6.0f CPU %-9v load %v\n",
			titles[s], m.rate, sheet.Round(m.p50), sheet.Round(m.p99), m.calls, m.retries, m.sent, sheet.Round(m.cpu), sheet.Round(m.load))
	}
}

// rows is the table of one recipe on one cluster size, the heading first.
func (r *report) rows(nodes int, recipe string) [][]string {
	ratio := "ops"
	if byLatency(recipe) {
		ratio = "p50"
	}
	rows := [][]string{{"clients", "server", "ops/s", "p50", "p99", "calls/op", "retries/op", "sent/op", "server CPU/op", "load CPU/op",
		ratio + " : etcd", ratio + " : ZooKeeper"}}
	for _, c := range r.cells {
		if c.nodes != nodes || c.recipe != recipe {
			continue
		}
		for _, s := range r.plan.subjects {
			if len(c.samples[s]) == 0 {
				continue
			}
			m := median(c.samples[s])
			row := []string{fmt.Sprint(c.clients), titles[s], fmt.Sprintf("%.0f", m.rate), sheet.Round(m.p50).String(), sheet.Round(m.p99).String(),
				fmt.Sprintf("%.1f", m.calls), fmt.Sprintf("%.1f", m.retries), fmt.Sprintf("%.0f B", m.sent), sheet.Round(m.cpu).String(), sheet.Round(m.load).String()}
			for _, beside := range []string{etcd, zookeeper} {
				text := ""
				if x, ok := c.ratio(s, beside); ok && s != beside {
					text = ratioText(x)
				}
				row = append(row, text)
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// goals is the table of the goals, the heading first.
func (r *report) goals() [][]string {
	rows := [][]string{{"stoa's extension", "beside", "goal", "measured", ""}}
	for _, g := range goals {
		rows = append(rows, g.judge(r)...)
	}
	return rows
}

// text prints the goals; the cells were told as they came.
func (r *report) text(w io.Writer) {
	for _, row := range r.goals() {
		fmt.Fprintf(w, "%-42s %-12s %-18s %-10s %s\n", row[0], row[1], row[2], row[3], row[4])
	}
	for _, s := range r.skipped {
		fmt.Fprintln(w, "skipped:", s)
	}
}

// what says what is measured of a recipe.
var what = map[string]string{
	"counter": "Every client increments one counter, again and again (figures 5 and 6 of the paper). The traditional recipe reads and " +
		"writes back under the condition that the counter is unchanged.",
	"queue": "Every client adds an element and then removes the head (figures 7 and 8); elements are their ids of ten bytes and have no other data. " +
		"An operation is one element, added and removed; p50 and p99 are those of the removal.",
	"barrier": "All clients enter a barrier at once (figures 9 and 10); it is closed again and reset, which is not part of the time. " +
		"An operation is one client's entrance; throughput is entrances per time that a meeting lasts. The CPU includes the reset.",
	"election": "The elected client resigns at once and campaigns again (figures 11 and 12). An operation is a leader change; " +
		"p50 and p99 are from the beginning of the old leader's resignation until the new leader knows.",
}

func (r *report) markdown(w io.Writer) {
	p := r.plan
	fmt.Fprintf(w, "# Benchmarks of the recipes\n\n")
	fmt.Fprintf(w, "Written by `make bench-recipes` on %s.\n\n", r.started.Format("2006-01-02"))
	fmt.Fprintf(w, "The traditional recipes over real etcd 3.7.3, over ZooKeeper 3.9.4 (`-Xmx512m`, all else by default) and over stoa, "+
		"and stoa's extensions, side by side in one run: %d interleaved rounds of %v of each cell after a warm-up, every client with a connection of its "+
		"own and one operation in flight, spread over the servers; the load generator runs on the same machine, with each service's "+
		"usual Go client. \"stoa, extension\" is called by etcd's client, at whichever server it is connected to; \"stoa, extension, session\" is the same "+
		"extension called over a session of stoa's own client, which goes to the leader by itself, as its users' sessions do. Figures are medians over the rounds. Calls are requests; retries are attempts in vain because another client was "+
		"faster; sent is what the clients wrote to their sockets; CPU is that of all servers together, from `/proc`. Ratios beside "+
		"counter and queue are of the throughput (more is better), beside barrier and election of the median latency (less is better). "+
		"After each round the promise of the recipe was checked: every increment counted once and returned a value of its own, every element was removed "+
		"exactly once and in order, no barrier opened early, no two leaders at once.\n\n", p.rounds, p.length)
	fmt.Fprintf(w, "Machine: %s.\n\n", r.machine)
	for _, s := range r.skipped {
		fmt.Fprintf(w, "Skipped: %s.\n\n", s)
	}
	fmt.Fprintf(w, "## Goals\n\n")
	sheet.Table(w, r.goals())
	for _, name := range p.recipes {
		fmt.Fprintf(w, "\n## %s%s\n\n%s\n", strings.ToUpper(name[:1]), name[1:], what[name])
		for _, n := range p.nodes {
			if p.img != "" {
				fmt.Fprintf(w, "\n![%s, %s](%s)\n", name, nodesText(n), sheet.Image(sheet.Way(p.write, p.img), image(name, n)))
			}
			fmt.Fprintf(w, "\n%s:\n\n", nodesText(n))
			sheet.Table(w, r.rows(n, name))
		}
	}
}

func image(recipe string, nodes int) string { return fmt.Sprintf("recipes-%s-%d.svg", recipe, nodes) }

// charts are a picture of each recipe on each cluster size.
func (r *report) charts() map[string]plot.Chart {
	all := map[string]plot.Chart{}
	for _, n := range r.plan.nodes {
		for _, name := range r.plan.recipes {
			all[image(name, n)] = r.chart(n, name)
		}
	}
	return all
}

// units of the first panel: what an operation is.
var units = map[string]string{"counter": "increments/s", "queue": "elements/s", "barrier": "entrances/s", "election": "changes of leader/s"}

func (r *report) chart(nodes int, name string) plot.Chart {
	panels := []struct {
		title, unit string
		of          func(sample) float64
	}{
		{"Throughput", units[name], func(s sample) float64 { return s.rate }},
		{"Latency, median", "ms", func(s sample) float64 { return float64(s.p50) / float64(time.Millisecond) }},
		{"Sent by the clients", "bytes per operation", func(s sample) float64 { return s.sent }},
	}
	c := plot.Chart{Title: fmt.Sprintf("%s%s, %s", strings.ToUpper(name[:1]), name[1:], nodesText(nodes))}
	for _, p := range panels {
		panel := plot.Panel{Title: p.title, X: "clients", Y: p.unit}
		for _, s := range r.plan.subjects {
			line := plot.Series{Name: titles[s]}
			for _, cell := range r.cells {
				if cell.nodes == nodes && cell.recipe == name && len(cell.samples[s]) > 0 {
					line.Points = append(line.Points, plot.Point{X: float64(cell.clients), Y: p.of(median(cell.samples[s]))})
				}
			}
			if len(line.Points) > 0 {
				panel.Series = append(panel.Series, line)
			}
		}
		c.Panels = append(c.Panels, panel)
	}
	return c
}
