package main

import (
	"fmt"
	"slices"
)

// goal is what the extension must reach beside another subject with the most clients.
type goal struct {
	recipe  string
	beside  string
	latency bool    // the ratio of the p50, at most; otherwise that of the throughput, at least
	ratio   float64 // extension : beside
}

var goals = []goal{
	{recipe: "counter", beside: etcd, ratio: 50},
	{recipe: "counter", beside: zookeeper, ratio: 25},
	{recipe: "queue", beside: zookeeper, ratio: 17},
	{recipe: "barrier", beside: etcd, latency: true, ratio: 0.5},
	{recipe: "barrier", beside: zookeeper, latency: true, ratio: 0.5},
	{recipe: "election", beside: etcd, latency: true, ratio: 0.5},
	{recipe: "election", beside: zookeeper, latency: true, ratio: 0.5},
}

// byLatency tells of which recipes the latency is what counts.
func byLatency(recipe string) bool {
	return slices.ContainsFunc(goals, func(g goal) bool { return g.recipe == recipe && g.latency })
}

// ratio compares two subjects in a cell by what counts for its recipe; ok says whether
// both were measured.
func (c cell) ratio(own, beside string) (ratio float64, ok bool) {
	a, b := c.samples[own], c.samples[beside]
	if len(a) == 0 || len(b) == 0 {
		return 0, false
	}
	if byLatency(c.recipe) {
		return float64(median(a).p50) / float64(median(b).p50), true
	}
	return median(a).rate / median(b).rate, true
}

// judge is rows of the goals' table for each cluster size: what, goal, measured, verdict;
// of the extension by etcd's client, and, if that was measured, by a session.
func (g goal) judge(rep *report) [][]string {
	asked := fmt.Sprintf("throughput ≥ %gx", g.ratio)
	if g.latency {
		asked = fmt.Sprintf("p50 ≤ %gx", g.ratio)
	}
	var rows [][]string
	for _, n := range rep.plan.nodes {
		c, ok := rep.cell(n, g.recipe, slices.Max(rep.plan.clients))
		if !ok {
			continue
		}
		what := fmt.Sprintf("%s, %d clients, %s", g.recipe, c.clients, nodesText(n))
		for _, own := range []string{extension, session} {
			row := []string{what, titles[g.beside], asked, "–", "not measured"}
			if ratio, ok := c.ratio(own, g.beside); ok {
				row[3], row[4] = ratioText(ratio), g.verdict(ratio)
			} else if own == session {
				continue
			}
			if own == session {
				row[0] += ", session"
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func (g goal) verdict(ratio float64) string {
	if g.latency && ratio > g.ratio || !g.latency && ratio < g.ratio {
		return "missed"
	}
	return "met"
}
