package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/stoa-kv/stoa/test/process"
	"github.com/stoa-kv/stoa/test/sheet"
)

// cell is one point of the figures.
type cell struct {
	server, way string
	mix         mix
}

// report holds what was measured.
type report struct {
	plan    *plan
	started time.Time
	machine string // as it was at the start
	samples map[cell][]sample
	broken  error // why there isn't more
}

func newReport(p *plan) *report {
	return &report{
		plan: p, started: time.Now(), samples: map[cell][]sample{},
		machine: process.MachineAtWork(),
	}
}

// add takes a sample and tells of it at once.
func (r *report) add(w io.Writer, c cell, s sample) {
	r.samples[c] = append(r.samples[c], s)
	m := c.mix
	fmt.Fprintf(w, "%s %-10s reads %3d %%, local %3d/%3d %%, burst %2d, %d+%d x %2d: ", c.server, c.way, m.reads, m.local[0], m.local[1], m.burst, m.clients[0], m.clients[1], m.window)
	for i, f := range s.region {
		fmt.Fprintf(w, "%s %7.0f/s p50 %-8v p99 %-8v ", names[i], f.rate, sheet.Round(f.p50), sheet.Round(f.p99))
	}
	fmt.Fprintf(w, "CPU %v, %d requests, %d switches, %d syncs, %d resyncs\n", sheet.Round(s.cpu), s.requests, s.switches, s.syncs, s.resyncs)
}

// at is the median of a cell's rounds, figure by figure; ok says whether there is any.
func (r *report) at(server, way string, m mix) (s sample, ok bool) {
	all := r.samples[cell{server, way, m}]
	if len(all) == 0 {
		return s, false
	}
	for i := range s.region {
		s.region[i] = figures{
			rate: median(all, func(s sample) float64 { return s.region[i].rate }),
			p50:  time.Duration(median(all, func(s sample) float64 { return float64(s.region[i].p50) })),
			p99:  time.Duration(median(all, func(s sample) float64 { return float64(s.region[i].p99) })),
		}
	}
	s.cpu = time.Duration(median(all, func(s sample) float64 { return float64(s.cpu) }))
	for _, one := range all {
		s.count(one)
	}
	return s, true
}

// count adds what was counted in another round.
func (s *sample) count(o sample) {
	s.mirrored += o.mirrored
	s.requests, s.switches, s.syncs, s.resyncs, s.toReads = s.requests+o.requests, s.switches+o.switches, s.syncs+o.syncs, s.resyncs+o.resyncs, s.toReads+o.toReads
}

func median(all []sample, of func(sample) float64) float64 {
	var values []float64
	for _, s := range all {
		values = append(values, of(s))
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// mix is what cells of the figures are measured with.
func (r *report) mix(read, east, west, burst int) mix {
	return mix{reads: read, local: [2]int{east, west}, burst: burst, window: r.plan.window, clients: [2]int{r.plan.clients, r.plan.clients}}
}

// under is the mix that composed and stretched clients are compared with over loads.
func (r *report) under(east, west int) mix {
	m := r.mix(slices.Min(r.plan.reads), 100, 100, r.most())
	m.clients = [2]int{east, west}
	return m
}

// most is the burst of figures 5, 7 and 8.
func (r *report) most() int { return slices.Max(r.plan.bursts) }

// loads are all such mixes: first those in which the west has the machine for itself.
func (r *report) loads() []mix {
	var alone, both []mix
	for _, clients := range r.plan.loads {
		alone, both = append(alone, r.under(0, clients)), append(both, r.under(clients, clients))
	}
	return append(alone, both...)
}

// speedup is the throughput of composed clients in a region over that of those of the
// stretched cluster.
func (r *report) speedup(server string, region, read, east, west int) (float64, bool) {
	return r.times(server, region, r.mix(read, east, west, r.most()), r.mix(read, 100, 100, r.most()))
}

func (r *report) times(server string, region int, own, other mix) (float64, bool) {
	a, ok := r.at(server, composed, own)
	b, too := r.at(server, stretched, other)
	if !ok || !too || b.region[region].rate == 0 {
		return 0, false
	}
	return a.region[region].rate / b.region[region].rate, true
}

// bursts are those that were measured on a kind of server, by figure 6.
func (r *report) bursts(server string) []int {
	return slices.DeleteFunc(slices.Clone(r.plan.bursts), func(burst int) bool {
		for c := range r.samples {
			if c.server == server && c.way == neverSync && c.mix.burst == burst {
				return false
			}
		}
		return true
	})
}

func (r *report) text(w io.Writer) {
	for _, row := range r.goals() {
		fmt.Fprintf(w, "%-62s %-24s %-34s %s\n", row[0], row[1], row[2], row[3])
	}
}

func ratioText(r float64) string {
	if r >= 10 {
		return fmt.Sprintf("%.0fx", r)
	}
	return fmt.Sprintf("%.2fx", r)
}
