package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/stoa-kv/stoa/test/plot"
	"github.com/stoa-kv/stoa/test/sheet"
)

// figure3 does the rounds of ZooFence's figure 3: few clients and many, that use their own region's keys,
// and now and then those of both.
func (b *bench) figure3(ctx context.Context) error {
	if err := b.heat(ctx); err != nil {
		return err
	}
	for round := range b.p.rounds {
		ways := slices.Clone(mirrorWays)
		if round%2 == 1 {
			slices.Reverse(ways)
		}
		for _, read := range b.p.reads {
			for _, local := range b.p.locals {
				for _, clients := range b.p.loads {
					if err := b.again(ctx, b.rep.mix3(read, local, clients), ways...); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

func (r *report) mix3(read, local, clients int) mix {
	m := r.mix(read, local, local, r.most())
	m.clients, m.shared = [2]int{clients, clients}, true
	return m
}

// total is the throughput of both regions.
func (s *sample) total() float64 { return s.region[0].rate + s.region[1].rate }

// mirrorGoals: at the localities for which the paper shows it, mirrored keys are about as fast as
// partitioning by hand. So are reads of shared keys alone, which are next to all clients in both. A client
// that keeps an order over all keys pays for the syncs in addition.
func (r *report) mirrorGoals(server string) (rows [][]string) {
	for _, read := range r.plan.reads {
		for _, local := range r.plan.locals {
			if local < 85 && read < 100 {
				continue
			}
			if median, least, highest, ok := r.pairs3(server, read, local); ok {
				rows = append(rows, []string{
					fmt.Sprintf("%s, %d %% reads, %d %% local, all loads; %s : %s", server, read, local, unordered, partitioned),
					fmt.Sprintf("throughput ≥ %.2fx", 1-nothing), fmt.Sprintf("%.2fx (%.2f–%.2f)", median, least, highest), verdict(median >= 1-nothing),
				})
			}
		}
	}
	return rows
}

// pairs3 compares mirrored keys with partitioning by hand round by round, over all loads: what drifts hits both.
func (r *report) pairs3(server string, read, local int) (median, least, highest float64, ok bool) {
	var all []float64
	for round := 0; ; round++ {
		var own, other float64
		for _, clients := range r.plan.loads {
			m := r.mix3(read, local, clients)
			a, b := r.samples[cell{server, unordered, m}], r.samples[cell{server, partitioned, m}]
			if round >= min(len(a), len(b)) {
				if len(all) > 0 {
					median, least, highest = quartiles(all)
				}
				return median, least, highest, len(all) > 0
			}
			own, other = own+a[round].total(), other+b[round].total()
		}
		all = append(all, own/other)
	}
}

func (r *report) markdown3(w io.Writer) {
	p := r.plan
	fmt.Fprintf(w, "# Benchmarks of mirrored keys\n\n")
	fmt.Fprintf(w, "Written by `make bench-compose` on %s: figure 3 of Halalai et al., *ZooFence* (§V-A), with [mirrored prefixes](composition.md#mirrored-prefixes) "+
		"over clusters of stoa and of etcd 3.7.3. The regions, clusters and clients are those of [benchmarks-compose.md](benchmarks-compose.md), %v apart there and back; "+
		"here, clients use keys of their own region, and with the rest of their bursts, of %d requests, keys of both regions.\n\n", r.started.Format("2006-01-02"), 2*p.oneWay, r.most())
	fmt.Fprintf(w, "| way | own keys | shared keys | one order over both |\n| --- | --- | --- | --- |\n"+
		"| %s | own region's cluster | at home in the east, with a mirror in the west, which western clients read | yes: a switch to other keys is synced |\n"+
		"| %s | the same | the same | no: two clients |\n"+
		"| %s | the same | in the eastern cluster, which western clients read at its member in the west | no: two clients |\n"+
		"| %s | in the eastern cluster | in the eastern cluster | yes |\n\n", mirrored, unordered, partitioned, oneCluster)
	fmt.Fprintf(w, "The paper's clients only write, and its replicated keys are written through a queue in all sites; here an update of a shared key goes to its home. Rounds of %v after %v, %d of each cell, of which the medians count, the ways in turn; for the goals the ways are compared round by round, and the median "+
		"of these ratios counts, with the quartiles. Mirrored reads are the share of all requests, of both regions, that the mirror has answered. "+
		"All servers, eight, and the load generator share the machine: where it has no CPU to spare, a region can gain what the other loses, and ratios near 1 differ from run to run.\n\n", p.length, p.warmup, p.rounds)
	if r.broken != nil {
		fmt.Fprintf(w, "**Not complete:** %v.\n\n", r.broken)
	}
	fmt.Fprintf(w, "Machine: %s.\n\n## Goals\n\n", r.machine)
	sheet.Table(w, r.goals())
	for _, server := range p.servers {
		fmt.Fprintf(w, "\n## %s\n", server)
		for _, read := range p.reads {
			fmt.Fprintf(w, "\n### %d %% reads\n\n", read)
			if p.img != "" {
				for _, what := range []string{"throughput", "latency"} {
					fmt.Fprintf(w, "![%s, %d %% reads](%s)\n\n", what, read, sheet.Image(sheet.Way(p.write, p.img), image3(server, what, read)))
				}
			}
			sheet.Table(w, r.rows3(server, read))
		}
	}
}

func (r *report) rows3(server string, read int) [][]string {
	rows := [][]string{{"local", "clients of each region", "way", "east req/s", "p50 / p99", "west req/s", "p50 / p99", "server CPU/req", "mirrored reads", "syncs", "both : by hand", "both : one cluster"}}
	for _, local := range r.plan.locals {
		for _, clients := range r.plan.loads {
			m := r.mix3(read, local, clients)
			hand, _ := r.at(server, partitioned, m)
			one, _ := r.at(server, oneCluster, m)
			for _, way := range mirrorWays {
				s, ok := r.at(server, way, m)
				if !ok {
					continue
				}
				row := []string{fmt.Sprintf("%d %%", local), fmt.Sprint(clients), way, fmt.Sprintf("%.0f", s.region[0].rate), latency(s.region[0]),
					fmt.Sprintf("%.0f", s.region[1].rate), latency(s.region[1]), sheet.Round(s.cpu).String(), fmt.Sprintf("%.0f %%", 100*float64(s.mirrored)/float64(max(s.requests, 1))), fmt.Sprint(s.syncs)}
				for _, o := range []sample{hand, one} {
					text := ""
					if o.total() > 0 {
						text = ratioText(s.total() / o.total())
					}
					row = append(row, text)
				}
				rows = append(rows, row)
			}
		}
	}
	return rows
}

func image3(server, what string, read int) string {
	return image(server, fmt.Sprintf("mirrors-%s-reads%d", what, read))
}

// charts3 have a panel for each locality: throughput of both regions, and median latency in the west,
// over the number of clients.
func (r *report) charts3() map[string]plot.Chart {
	all := map[string]plot.Chart{}
	for _, server := range r.plan.servers {
		for _, read := range r.plan.reads {
			title := fmt.Sprintf("%s, %d %% reads", server, read)
			all[image3(server, "throughput", read)] = r.chart3(server, title+", both regions", "requests/s", read, func(s sample) float64 { return s.total() })
			all[image3(server, "latency", read)] = r.chart3(server, title+", clients in the west", "median latency, ms", read,
				func(s sample) float64 { return s.region[1].p50.Seconds() * 1000 })
		}
	}
	return all
}

func (r *report) chart3(server, title, unit string, read int, of func(sample) float64) plot.Chart {
	c := plot.Chart{Title: title}
	for _, local := range r.plan.locals {
		panel := plot.Panel{Title: fmt.Sprintf("%d %% local", local), X: "clients of each region", Y: unit}
		for _, way := range mirrorWays {
			line := plot.Series{Name: way}
			for _, clients := range r.plan.loads {
				if s, ok := r.at(server, way, r.mix3(read, local, clients)); ok {
					line.Points = append(line.Points, plot.Point{X: float64(clients), Y: of(s)})
				}
			}
			panel.Series = append(panel.Series, line)
		}
		c.Panels = append(c.Panels, panel)
	}
	return c
}
