package main

import (
	"fmt"
	"strings"
)

// verdict compares a measurement with its goal.
type verdict struct {
	goal, asked, measured string
	missed                bool
}

func (v verdict) word() string {
	if v.missed {
		return "missed"
	}
	return "met"
}

// atLeast and atMost judge a ratio by the median of its rounds.
func atLeast(goal string, r ratio, asked float64) verdict {
	return verdict{goal: goal, asked: "≥ " + ratioText(asked), measured: r.String(), missed: r.mid < asked}
}

func atMost(goal string, r ratio, asked float64) verdict {
	return verdict{goal: goal, asked: "≤ " + ratioText(asked), measured: r.String(), missed: r.mid > asked}
}

// sameLatency is atMost of 1 for latencies taken from histograms: their buckets are
// 3 % wide, and one within the bucket is the same.
func sameLatency(goal string, r ratio) verdict {
	v := atMost(goal, r, 1)
	v.missed = r.mid > 1+1.0/sub
	return v
}

// unaryGoals are what etcd's API must reach beside etcd, for values of 256 B.
// With many clients throughput and the servers' CPU time per operation count;
// with one client the latency may not exceed etcd's.
func unaryGoals(c cell, own, base []sample) []verdict {
	name := "etcd API, " + c.name()
	if c.clients == 1 && c.op != "sget" {
		return []verdict{sameLatency(name+": p50", compare(own, base, byP50)), sameLatency(name+": p99", compare(own, base, byP99))}
	}
	type asked struct{ rate, cpu float64 }
	of, ok := map[string]asked{"1 put": {1.7, 0.5}, "1 get": {1.3, 0.65}, "3 put": {3.5, 0.25}, "3 get": {2, 0.4}}[fmt.Sprint(c.nodes, " ", c.op)]
	if c.clients != unaryClients || !ok {
		return nil
	}
	return []verdict{
		atLeast(name+": throughput", compare(own, base, byRate), of.rate),
		atMost(name+": CPU per operation", compare(own, base, byCPU), of.cpu),
	}
}

// verdictText is the short form for a cell of a table.
func verdictText(all []verdict) string {
	var misses []string
	for _, v := range all {
		if v.missed {
			_, what, _ := strings.Cut(v.goal, ": ")
			misses = append(misses, what+" "+v.asked)
		}
	}
	switch {
	case len(all) == 0:
		return ""
	case len(misses) == 0:
		return "met"
	}
	return "missed: " + strings.Join(misses, ", ")
}
