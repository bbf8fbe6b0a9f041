package main

import (
	"fmt"

	"github.com/stoa-kv/stoa/test/plot"
)

func image(server, figure string) string { return fmt.Sprintf("compose-%s-%s.svg", server, figure) }

// charts are a picture of each figure, for each kind of server.
func (r *report) charts() map[string]plot.Chart {
	all := map[string]plot.Chart{}
	for _, server := range r.plan.servers {
		all[image(server, "figure5")] = r.chart5(server)
		all[image(server, "figure7")] = r.chartBeside(server, false)
		all[image(server, "figure8")] = r.chartBeside(server, true)
		for _, burst := range r.bursts(server) {
			all[image(server, fmt.Sprintf("figure6-burst%d", burst))] = r.chart6(server, burst)
		}
	}
	return all
}

// chart5 has a panel for each region: throughput over the share of reads.
func (r *report) chart5(server string) plot.Chart {
	c := plot.Chart{Title: server + ", local work"}
	for i, name := range names {
		panel := plot.Panel{Title: name, X: "reads, %", Y: "requests/s"}
		for _, way := range []string{composed, neverSync, syncAll} {
			line := plot.Series{Name: way}
			for _, read := range r.plan.reads {
				if s, ok := r.at(server, way, r.mix(read, 100, 100, r.most())); ok {
					line.Points = append(line.Points, plot.Point{X: float64(read), Y: s.region[i].rate})
				}
			}
			panel.Series = append(panel.Series, line)
		}
		c.Panels = append(c.Panels, panel)
	}
	return c
}

// chart6 has a panel for each share of reads: the western clients' throughput over the
// share of local requests.
func (r *report) chart6(server string, burst int) plot.Chart {
	c := plot.Chart{Title: fmt.Sprintf("%s, western clients, bursts of %d", server, burst)}
	for _, read := range r.plan.reads {
		panel := plot.Panel{Title: fmt.Sprintf("%d %% reads", read), X: "local requests, %", Y: "requests/s"}
		for _, way := range []string{composed, neverSync, syncAll} {
			line := plot.Series{Name: way}
			for _, local := range r.plan.locals {
				m := r.mix(read, 100, local, burst)
				if local == 100 {
					m.burst = r.most()
				}
				if s, ok := r.at(server, way, m); ok {
					line.Points = append(line.Points, plot.Point{X: float64(local), Y: s.region[1].rate})
				}
			}
			panel.Series = append(panel.Series, line)
		}
		c.Panels = append(c.Panels, panel)
	}
	return c
}

// chartBeside has a panel for each region: how many times the throughput of the stretched
// cluster, over the share of local requests.
func (r *report) chartBeside(server string, both bool) plot.Chart {
	c := plot.Chart{Title: server + ", composed : stretched, western clients work in both regions"}
	if both {
		c.Title = server + ", composed : stretched, all clients work in both regions"
	}
	for i, name := range names {
		panel := plot.Panel{Title: name, X: "local requests, %", Y: "times the throughput"}
		for _, read := range r.plan.reads {
			line := plot.Series{Name: fmt.Sprintf("%d %% reads", read)}
			for _, local := range r.plan.locals {
				if x, ok := r.speedup(server, i, read, eastLocal(both, local), local); ok {
					line.Points = append(line.Points, plot.Point{X: float64(local), Y: x})
				}
			}
			panel.Series = append(panel.Series, line)
		}
		c.Panels = append(c.Panels, panel)
	}
	return c
}
