package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stoa-kv/stoa/test/plot"
	"github.com/stoa-kv/stoa/test/process"
)

// writers are the clients beside the reader. They share few connections, and so few
// goroutines of this program, where the reader would have to queue with them.
var writers = work{op: "put", sessions: 100, depth: 64, conns: 4}

// reader reads one at a time, and not so much that it fills the machine by itself.
var reader = work{op: "get", sessions: 1, depth: 1, pace: 500}

// shares are how much of what they can do at most the writers do.
var shares = []float64{0, 0.01, 0.03, 0.1, 0.25, 0.5, 0.9}

// unchanged is how much a latency may grow and count as the same, and saturated the
// part of the machine's CPU time above which nothing is asked.
const (
	unchanged = 1.2
	saturated = 0.9
)

// measureIsolation measures how long one client's reads take while others write.
func measureIsolation(p *plan) (s section, err error) {
	nodes := slices.Max(p.nodes)
	a, err := newArena(p, arenaOf{nodes: nodes, value: p.value, zk: true})
	if err != nil {
		return s, err
	}
	defer func() { a.close(err != nil) }()
	writers := writers
	writers.pick = a.keys.ownKeys
	causal := reader
	causal.op = "causal"
	type side struct {
		name            string
		cluster         *process.Cluster
		read, write     func(work) contender
		reader, writers work
	}
	sides := []side{
		{"stoa, strict", a.stoa.cluster, a.overSessions, a.overSessions, reader, writers},
		{"stoa, causal", a.stoa.cluster, a.overSessions, a.overSessions, causal, writers},
	}
	if a.zk != nil {
		sides = append(sides, side{"ZooKeeper", a.zk, a.onZooKeeper, a.onZooKeeper, reader, writers})
	}
	charts := []plot.Panel{
		{Title: "p50", X: "puts/s of the writers", Y: "p50 of the reader, ms"},
		{Title: "p99", X: "puts/s of the writers", Y: "p99 of the reader, ms"},
	}
	s.rows = [][]string{{"reader", "puts/s beside", "of their most", "p50", "p99", "p50 ratio", "p99 ratio", "machine's CPU in use", "goal"}}
	for _, side := range sides {
		limit, err := p.measure(side.cluster, side.write(side.writers).start)
		if err != nil {
			return s, fmt.Errorf("%s: %w", side.name, err)
		}
		var alone isolated
		for _, share := range shares {
			w := side.writers
			w.pace = limit.rate * share
			got, err := p.beside(side.cluster, side.read(side.reader).start, side.write(w).start, share > 0)
			if err != nil {
				return s, fmt.Errorf("%s: %w", side.name, err)
			}
			if share == 0 {
				alone = got
			}
			row := got.row(side.name, share, alone)
			s.rows = append(s.rows, row)
			if share > 0 && got.busy < saturated && side.cluster == a.stoa.cluster {
				grown := ratioOf([]float64{float64(got.p50)}, []float64{float64(alone.p50)})
				s.verdicts = append(s.verdicts, atMost(fmt.Sprintf("isolation, %s read beside writers at %s of their most: p50 beside that alone", side.name, row[2]), grown, unchanged))
			}
			for i, d := range []time.Duration{got.p50, got.p99} {
				addPoint(&charts[i], side.name, plot.Point{X: got.beside, Y: float64(d) / float64(time.Millisecond)})
			}
			fmt.Fprintln(os.Stderr, strings.Join(s.rows[len(s.rows)-1], "  "))
		}
	}
	s.charts = map[string]plot.Chart{"bench-isolation.svg": {Title: fmt.Sprintf("One reader beside %d writers, %d nodes, %d B", writers.sessions, nodes, p.value), Panels: charts}}
	s.text = fmt.Sprintf("Section 4.1 of ZooNet: one client reads, %.0f times a second, on a cluster of %d, while %d others write values of %d B at a fixed pace, each with a "+
		"session and a directory of its own. %d rounds of %v. Goal: the reader's p50 within %.0f %% of what it is alone, as long as less than %.0f %% of the machine's CPU time is in use. "+
		"Servers and clients share the machine, so that some of what grows is the queue for a core.",
		reader.pace, nodes, writers.sessions, p.value, p.rounds, p.length, (unchanged-1)*100, saturated*100)
	return s, nil
}

// isolated is what a reader measured beside writers.
type isolated struct {
	sample
	beside float64 // the writers' puts per second
	busy   float64 // part of the machine's CPU time
}

func (i isolated) row(name string, share float64, alone isolated) []string {
	p50, p99 := float64(i.p50)/float64(alone.p50), float64(i.p99)/float64(alone.p99)
	verdict := ""
	switch {
	case share == 0:
	case i.busy >= saturated:
		verdict = "saturated"
	case p50 <= unchanged:
		verdict = "met"
	default:
		verdict = "missed"
	}
	return []string{name, fmt.Sprintf("%.0f", i.beside), fmt.Sprintf("%.0f %%", share*100), round(i.p50).String(), round(i.p99).String(),
		ratioText(p50), ratioText(p99), fmt.Sprintf("%.0f %%", i.busy*100), verdict}
}

// beside is the median round of a reader while writers, if any, are at work.
func (p *plan) beside(c *process.Cluster, read, write func() (*running, error), any bool) (isolated, error) {
	var rounds []isolated
	for range p.rounds {
		got, err := p.besideOnce(c, read, write, any)
		if err != nil {
			return got, err
		}
		rounds = append(rounds, got)
	}
	slices.SortFunc(rounds, func(a, b isolated) int { return int(a.p50 - b.p50) })
	return rounds[len(rounds)/2], nil
}

func (p *plan) besideOnce(c *process.Cluster, read, write func() (*running, error), any bool) (out isolated, err error) {
	if any {
		w, err := write()
		if err != nil {
			return out, err
		}
		began := time.Now()
		w.record()
		defer func() {
			out.beside = float64(w.recorded().count) / time.Since(began).Seconds()
			if serr := w.stop(); err == nil {
				err = serr
			}
		}()
	}
	all, idle, err := machineCPU()
	if err != nil {
		return out, err
	}
	if out.sample, err = p.measure(c, read); err != nil {
		return out, err
	}
	all2, idle2, err := machineCPU()
	out.busy = 1 - (idle2-idle)/(all2-all)
	return out, err
}

// machineCPU is how much CPU time the machine has had, and how much of it was idle.
func machineCPU() (all, idle float64, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, fmt.Errorf("reading the machine's CPU time: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 {
		return 0, 0, errors.New("reading the machine's CPU time: /proc/stat has another form")
	}
	for i, f := range fields[1:9] { // what guests used is in user's
		n, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("reading the machine's CPU time: %w", err)
		}
		all += n
		if i == 3 || i == 4 { // idle, iowait
			idle += n
		}
	}
	return all, idle, nil
}
