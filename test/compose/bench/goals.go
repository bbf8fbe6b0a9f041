package main

import (
	"fmt"
	"slices"
)

// nothing is how much of a plain client's throughput and latency a difference may be that
// counts as none: two runs of one and the same program differ by as much.
const nothing = 0.05

// speedupGoal is what the paper shows for the region that is far from the stretched
// cluster's voters, in its most write-intensive work, all of it local.
const speedupGoal = 7

// goals is the table of the goals, the heading first: what, goal, measured, verdict.
func (r *report) goals() [][]string {
	rows := [][]string{{"what", "goal", "measured", ""}}
	for _, server := range r.plan.servers {
		if r.plan.mirrors {
			rows = append(rows, r.mirrorGoals(server)...)
			continue
		}
		rows = append(rows, r.localGoals(server)...)
		rows = append(rows, r.syncGoals(server)...)
		rows = append(rows, r.speedupGoals(server)...)
	}
	return rows
}

func verdict(met bool) string {
	if met {
		return "met"
	}
	return "missed"
}

// localGoals compare composed clients that do local work with plain ones.
func (r *report) localGoals(server string) [][]string {
	var rows [][]string
	for _, window := range []int{1, r.plan.window} {
		for _, read := range r.localReads() {
			m := r.mix(read, 100, 100, r.most())
			m.window = window
			own, ok := r.at(server, composed, m)
			other, too := r.at(server, plain, m)
			if !ok || !too {
				continue
			}
			rate, least, highest := r.pairs(server, m)
			delay := float64(own.region[0].p50+own.region[1].p50) / float64(other.region[0].p50+other.region[1].p50)
			rows = append(rows, []string{
				fmt.Sprintf("%s, local work, %d %% reads, %s, composed : plain", server, read, underWay(window)),
				fmt.Sprintf("throughput ≥ %.2fx", 1-nothing), fmt.Sprintf("%.2fx (%.2f–%.2f), p50 %.2fx", rate, least, highest, delay), verdict(rate >= 1-nothing),
			})
		}
	}
	return rows
}

// pairs compares rounds that were beside each other: the median, and how far half of all
// are from it.
func (r *report) pairs(server string, m mix) (median, least, highest float64) {
	own, other := r.samples[cell{server, composed, m}], r.samples[cell{server, plain, m}]
	var all []float64
	for i := range min(len(own), len(other)) {
		all = append(all, (own[i].region[0].rate+own[i].region[1].rate)/(other[i].region[0].rate+other[i].region[1].rate))
	}
	return quartiles(all)
}

func quartiles(all []float64) (median, least, highest float64) {
	slices.Sort(all)
	n := len(all)
	return all[n/2], all[n/4], all[n-1-n/4]
}

// localReads are the shares of reads at which composed clients were beside plain ones.
func (r *report) localReads() []int {
	return slices.Compact([]int{slices.Min(r.plan.reads), slices.Max(r.plan.reads)})
}

func underWay(window int) string {
	if window == 1 {
		return "1 request in flight"
	}
	return fmt.Sprintf("%d in flight", window)
}

// syncGoals count, beside the composition's own numbers, what the load was: a switch to
// a read is one sync, one to an update is none.
func (r *report) syncGoals(server string) [][]string {
	var onlyReads, others sample
	for c, all := range r.samples {
		if c.server != server || c.way != composed {
			continue
		}
		sum := &others
		if c.mix.reads == 100 {
			sum = &onlyReads
		}
		for _, s := range all {
			sum.count(s)
		}
	}
	var rows [][]string
	for _, line := range []struct {
		what, goal string
		sample
	}{{"reads alone", "syncs = switches", onlyReads}, {"reads and updates", "syncs = switches to a read", others}} {
		if line.requests == 0 {
			continue
		}
		rows = append(rows, []string{
			fmt.Sprintf("%s, %s, %d requests", server, line.what, line.requests), line.goal,
			fmt.Sprintf("%d switches, %d to a read, %d syncs, %d others", line.switches, line.toReads, line.syncs, line.resyncs),
			verdict(line.syncs == line.toReads && line.resyncs == 0),
		})
	}
	return rows
}

func (r *report) speedupGoals(server string) [][]string {
	var rows [][]string
	for _, m := range r.loads() {
		if x, ok := r.times(server, 1, m, m); ok {
			rows = append(rows, []string{
				fmt.Sprintf("%s, west, %d %% reads, all local, %d clients, %d in the east; composed : stretched", server, m.reads, m.clients[1], m.clients[0]),
				fmt.Sprintf("throughput ≥ %dx", speedupGoal), ratioText(x), verdict(x >= speedupGoal),
			})
		}
	}
	return rows
}
