package main

import (
	"fmt"
	"io"

	"github.com/stoa-kv/stoa/test/sheet"
)

func (r *report) markdown(w io.Writer) {
	p := r.plan
	fmt.Fprintf(w, "# Benchmarks of composed clusters\n\n")
	fmt.Fprintf(w, "Written by `make bench-compose` on %s. The figures are those of Lev-Ari et al., *Modular Composition of Coordination Services* (§5.3, §5.4), "+
		"with `client/compose` over clusters of stoa and of etcd 3.7.3.\n\n", r.started.Format("2006-01-02"))
	fmt.Fprintf(w, `Two regions, east and west, each a network namespace. A packet from one to the other takes %v each way, so %v there and back; it is `+
		"held back by the benchmark itself between two TUN devices, since netem is not in every kernel (`test/region`). "+
		"Within a region nothing is delayed, and nothing bounds the bandwidth. "+
		"Each region has a cluster: three voters at home and one member in the other region for the reads there, a learner with etcd, with stoa a fourth voter "+
		"without which the three at home are a majority. %d clients in each region, with up to %d requests in flight each, of %d B; "+
		"clients are spread over the voters of their region, and their reads at home are local to one. A client sends a *burst* of requests to one cluster, then chooses a cluster again: its own "+
		"region's with the probability *local*. All clients are of `client/compose`:\n\n", p.oneWay, 2*p.oneWay, p.clients, p.window, valueSize)
	fmt.Fprintf(w, "- **composed**: the algorithm's syncs\n- **never-sync**: a client for each cluster, asked in turns: no syncs, hence inconsistent; what composed would be if consistency were free\n"+
		"- **sync-all**: every read is synced\n- **stretched**: all keys are in the eastern cluster; western clients read at its member in the west\n"+
		"- **plain**: no composition, a session of stoa's client with causal reads, or an etcd client with serializable ones\n\n")
	fmt.Fprintf(w, "Rounds of %v after %v, one of each cell (%d pairs where composed and plain are compared; of their ratios the median counts, and the quartiles are given), "+
		"the ways in turn. All servers, eight at a time, and the load generator share the machine: where it has no CPU to spare, throughput reflects the cost of all "+
		"of that together, and a region can gain what the other loses. Syncs and switches are of whole rounds; what they ought to be is counted by the load. "+
		"A sync is needed only where the first request to a cluster is a read; updates lead by themselves.\n\n", p.length, p.warmup, p.rounds)
	if r.broken != nil {
		fmt.Fprintf(w, "**Not complete:** %v.\n\n", r.broken)
	}
	fmt.Fprintf(w, "Machine: %s.\n\n## Goals\n\n", r.machine)
	sheet.Table(w, r.goals())
	for _, server := range p.servers {
		fmt.Fprintf(w, "\n## %s\n", server)
		for _, f := range figuresOf {
			fmt.Fprintf(w, "\n### %s\n\n%s\n\n", f.title, f.text)
			if p.img != "" {
				for _, image := range f.images(r, server) {
					fmt.Fprintf(w, "![%s](%s)\n\n", f.title, sheet.Image(sheet.Way(r.plan.write, r.plan.img), image))
				}
			}
			sheet.Table(w, f.rows(r, server))
		}
	}
}

// figureOf is a part of the report.
type figureOf struct {
	title, text string
	rows        func(r *report, server string) [][]string
	images      func(r *report, server string) []string
}

var figuresOf = []figureOf{
	{"Local work (figure 5)", "All clients work in their own region.", (*report).rows5,
		func(r *report, server string) []string { return []string{image(server, "figure5")} }},
	{"The cost of syncs (figure 6)", "Eastern clients work in their region, western ones in both. The figures are the western clients'.", (*report).rows6,
		func(r *report, server string) (all []string) {
			for _, burst := range r.bursts(server) {
				all = append(all, image(server, fmt.Sprintf("figure6-burst%d", burst)))
			}
			return all
		}},
	{"Beside one stretched cluster (figure 7)", "Eastern clients work in their region, western ones in both, in long bursts. " +
		"To the stretched cluster it makes no difference which keys are meant, so it has one line for each share of reads.", func(r *report, server string) [][]string { return r.rowsBeside(server, false) },
		func(r *report, server string) []string { return []string{image(server, "figure7")} }},
	{"The same with few clients and with many", "All clients work in their own region, with the fewest reads. The regions share the machine here, and what one does takes CPU and disk " +
		"from the other; when the western clients are alone, they have as much as they had if each region had machines of its own.", (*report).rowsLoad,
		func(*report, string) []string { return nil }},
	{"The same, with both regions' clients working in both (figure 8)", "", func(r *report, server string) [][]string { return r.rowsBeside(server, true) },
		func(r *report, server string) []string { return []string{image(server, "figure8")} }},
}

func latency(f figures) string { return fmt.Sprintf("%v / %v", sheet.Round(f.p50), sheet.Round(f.p99)) }

func (r *report) rows5(server string) [][]string {
	rows := [][]string{{"reads", "way", "east req/s", "p50 / p99", "west req/s", "p50 / p99", "server CPU/req", "switches", "syncs"}}
	for _, read := range r.plan.reads {
		for _, way := range []string{composed, neverSync, syncAll, plain} {
			if s, ok := r.at(server, way, r.mix(read, 100, 100, r.most())); ok {
				rows = append(rows, []string{fmt.Sprintf("%d %%", read), way, fmt.Sprintf("%.0f", s.region[0].rate), latency(s.region[0]),
					fmt.Sprintf("%.0f", s.region[1].rate), latency(s.region[1]), sheet.Round(s.cpu).String(), fmt.Sprint(s.switches), fmt.Sprint(s.syncs)})
			}
		}
	}
	return rows
}

func (r *report) rows6(server string) [][]string {
	rows := [][]string{{"burst", "reads", "local", "composed req/s", "p50 / p99", "never-sync req/s", "p50 / p99", "sync-all req/s", "p50 / p99",
		"composed : never-sync", "switches", "syncs"}}
	for _, burst := range r.plan.bursts {
		for _, read := range r.plan.reads {
			for _, local := range r.plan.locals {
				m := r.mix(read, 100, local, burst)
				if local == 100 {
					m.burst = r.most() // the same thing
				}
				row := []string{fmt.Sprint(burst), fmt.Sprintf("%d %%", read), fmt.Sprintf("%d %%", local)}
				for _, way := range []string{composed, neverSync, syncAll} {
					s, _ := r.at(server, way, m)
					row = append(row, fmt.Sprintf("%.0f", s.region[1].rate), latency(s.region[1]))
				}
				own, ok := r.at(server, composed, m)
				never, too := r.at(server, neverSync, m)
				if !ok || !too {
					continue
				}
				rows = append(rows, append(row, ratioText(own.region[1].rate/never.region[1].rate), fmt.Sprint(own.switches), fmt.Sprint(own.syncs)))
			}
		}
	}
	return rows
}

// rowsBeside are the tables of figures 7 and 8.
func (r *report) rowsBeside(server string, both bool) [][]string {
	rows := [][]string{{"reads", "local", "way", "east req/s", "p50 / p99", "west req/s", "p50 / p99", "east : stretched", "west : stretched"}}
	line := func(read int, local, way string, s sample) []string {
		return []string{fmt.Sprintf("%d %%", read), local, way, fmt.Sprintf("%.0f", s.region[0].rate), latency(s.region[0]),
			fmt.Sprintf("%.0f", s.region[1].rate), latency(s.region[1])}
	}
	for _, read := range r.plan.reads {
		if s, ok := r.at(server, stretched, r.mix(read, 100, 100, r.most())); ok {
			rows = append(rows, append(line(read, "any", stretched, s), "", ""))
		}
		for _, local := range r.plan.locals {
			east := eastLocal(both, local)
			s, ok := r.at(server, composed, r.mix(read, east, local, r.most()))
			x, too := r.speedup(server, 0, read, east, local)
			y, three := r.speedup(server, 1, read, east, local)
			if ok && too && three {
				rows = append(rows, append(line(read, fmt.Sprintf("%d %%", local), composed, s), ratioText(x), ratioText(y)))
			}
		}
	}
	return rows
}

// rowsLoad is the comparison by the number of clients.
func (r *report) rowsLoad(server string) [][]string {
	rows := [][]string{{"clients east + west", "way", "east req/s", "p50 / p99", "west req/s", "p50 / p99", "server CPU/req", "east : stretched", "west : stretched"}}
	for _, m := range r.loads() {
		for _, way := range []string{stretched, composed} {
			s, ok := r.at(server, way, m)
			if !ok {
				continue
			}
			row := []string{fmt.Sprintf("%d + %d", m.clients[0], m.clients[1]), way, fmt.Sprintf("%.0f", s.region[0].rate), latency(s.region[0]),
				fmt.Sprintf("%.0f", s.region[1].rate), latency(s.region[1]), sheet.Round(s.cpu).String()}
			for region := range names {
				text := ""
				if x, ok := r.times(server, region, m, m); ok && way == composed && m.clients[region] > 0 {
					text = ratioText(x)
				}
				row = append(row, text)
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// eastLocal is the share of local requests of the eastern clients in figure 7, and in 8.
func eastLocal(both bool, local int) int {
	if both {
		return local
	}
	return 100
}
