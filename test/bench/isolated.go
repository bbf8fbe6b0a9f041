package main

import "fmt"

// saturated is the part of the machine's CPU time above which nothing is asked.
const saturated = 0.9

// isolated is what a reader measured with writers at one share of their most, by round.
type isolated struct {
	share         float64
	alone         []sample // of the same rounds
	beside, apart []sample
	puts          []float64 // the writers' per second, beside it
}

// grown is what the goal is about.
func (at isolated) grown() ratio { return compare(at.beside, at.alone, byP50) }

// machine is the effect of the machine's load alone on a reader: its cluster
// has no writers.
func (at isolated) machine() ratio { return compare(at.apart, at.alone, byP50) }

// own is what remains: writers on the reader's cluster beside as many on another.
func (at isolated) own() ratio { return compare(at.beside, at.apart, byP50) }

func (at isolated) busy() float64 { return median(at.beside).busy }

// free reports whether a reader whose cluster has no writers is as fast as
// alone. Where it isn't, the machine is saturated, as far as latency goes.
func (at isolated) free() bool { return at.machine().mid <= unchanged && at.busy() < saturated }

// word is the verdict of one row.
func (at isolated) word() string {
	switch {
	case at.share == 0 || len(at.apart) == 0:
		return ""
	case !at.free():
		return "saturated"
	case at.grown().mid <= unchanged:
		return "met"
	}
	return "missed"
}

func (at isolated) row(l lonely) []string {
	m := median(at.beside)
	row := []string{l.name, fmt.Sprintf("%.0f", middle(at.puts)), fmt.Sprintf("%g %%", at.share*100), round(m.p50).String(), round(m.p99).String(),
		fmt.Sprintf("%.0f %%", m.busy*100), "", "", "", "", at.word()}
	if at.share == 0 {
		return row
	}
	row[6], row[7] = at.grown().String(), compare(at.beside, at.alone, byP99).String()
	if len(at.apart) > 0 {
		row[8], row[9] = at.machine().String(), at.own().String()
	}
	return row
}

// isolationGoals judges a reader twice, each time by its worst row: against
// itself alone as long as the machine is free, and against itself with the
// writers on another cluster as long as the machine isn't all in use. The
// slowdown there is the servers'.
func isolationGoals(l lonely, all []isolated) []verdict {
	if l.apart == nil {
		return nil
	}
	name := fmt.Sprintf("isolation, %s, p50 beside writers: ", l.name)
	return []verdict{
		isolationGoal(name+"beside that alone, until the machine is saturated", all, isolated.free, isolated.grown),
		isolationGoal(name+"beside that with the writers on another cluster", all, func(at isolated) bool { return at.busy() < saturated }, isolated.own),
	}
}

func isolationGoal(goal string, all []isolated, asked func(isolated) bool, of func(isolated) ratio) verdict {
	var worst, kept *isolated
	within := true
	for i := range all {
		at := &all[i]
		if at.share == 0 || !asked(*at) {
			continue
		}
		if worst == nil || of(*at).mid > of(*worst).mid {
			worst = at
		}
		if within = within && of(*at).mid <= unchanged; within {
			kept = at
		}
	}
	v := verdict{goal: goal, asked: "≤ " + ratioText(unchanged)}
	if worst == nil {
		v.measured, v.missed = "the machine is saturated with the fewest writes", true
		return v
	}
	v.measured, v.missed = fmt.Sprintf("%v at %.0f puts/s", of(*worst), middle(worst.puts)), of(*worst).mid > unchanged
	if v.missed && kept != nil {
		v.measured += fmt.Sprintf("; within %s up to %.0f puts/s", ratioText(unchanged), middle(kept.puts))
	}
	return v
}

func isolationText(p *plan, nodes int) string {
	return fmt.Sprintf("Section 4.1 of ZooNet: one client reads, %.0f times a second whether or not it is answered, on a cluster of %d, while %d others write values of %d B at a pace, each with a "+
		"session and a directory of its own. %d rounds of %v, each of them over all paces. Goal: the reader's p50 within %.0f %% of what it is alone, until the machine is saturated.\n\n"+
		"Servers and clients share the machine, and a reader must queue for a core long before all of its CPU time is in use. How long, is measured beside each row: the same reader, while as many writers "+
		"write to another cluster on the same machine, which shares nothing else with the reader's. Where that alone takes the p50 beyond %.0f %%, or %.0f %% of the CPU time is in use, the machine counts as saturated. "+
		"The second goal asks for more: what the writers add on the reader's own cluster, as long as less than %.0f %% is in use. etcd and ZooKeeper are given for comparison, at shares of their own maximum. "+
		"etcd's reader asks the leader, as stoa's does; ZooKeeper's reads are local.",
		reader.pace, nodes, writers.sessions, p.value, p.rounds, p.length, (unchanged-1)*100, (unchanged-1)*100, saturated*100, saturated*100)
}
