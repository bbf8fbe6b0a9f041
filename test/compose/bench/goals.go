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
			rate := (own.region[0].rate + own.region[1].rate) / (other.region[0].rate + other.region[1].rate)
			delay := float64(own.region[0].p50+own.region[1].p50) / float64(other.region[0].p50+other.region[1].p50)
			rows = append(rows, []string{
				fmt.Sprintf("%s, local work, %d %% reads, %s, composed : plain", server, read, underWay(window)),
				fmt.Sprintf("throughput ≥ %.2fx", 1-nothing), fmt.Sprintf("%.2fx, p50 %.2fx", rate, delay), verdict(rate >= 1-nothing),
			})
		}
	}
	return rows
}

// localReads are the shares of reads at which composed clients were beside plain ones.
func (r *report) localReads() []int {
	return slices.Compact([]int{slices.Min(r.plan.reads), slices.Max(r.plan.reads)})
}

func underWay(window int) string {
	if window == 1 {
		return "1 request under way"
	}
	return fmt.Sprintf("%d under way", window)
}

// syncGoals count: a switch to a read is one sync, one to an update none.
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
			sum.requests, sum.switches, sum.syncs, sum.resyncs = sum.requests+s.requests, sum.switches+s.switches, sum.syncs+s.syncs, sum.resyncs+s.resyncs
		}
	}
	line := func(what, goal string, s sample, met bool) []string {
		return []string{fmt.Sprintf("%s, %s, %d requests", server, what, s.requests), goal,
			fmt.Sprintf("%d switches, %d syncs, %d others", s.switches, s.syncs, s.resyncs), verdict(met && s.resyncs == 0)}
	}
	return [][]string{
		line("reads alone", "syncs = switches", onlyReads, onlyReads.syncs == onlyReads.switches),
		line("reads and updates", "syncs ≤ switches", others, others.syncs <= others.switches),
	}
}

func (r *report) speedupGoals(server string) [][]string {
	var rows [][]string
	for _, read := range r.plan.reads {
		x, ok := r.speedup(server, 1, read, 100, 100)
		if !ok {
			continue
		}
		row := []string{fmt.Sprintf("%s, west, %d %% reads, all local, composed : stretched", server, read), "", ratioText(x), ""}
		if read <= 50 {
			row[1], row[3] = fmt.Sprintf("throughput ≥ %dx", speedupGoal), verdict(x >= speedupGoal)
		}
		rows = append(rows, row)
	}
	return rows
}
