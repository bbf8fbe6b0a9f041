package elle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// The kinds of edges. A cycle is as bad as the weakest kind of isolation that forbids it.
const (
	order = iota
	from
	before
	time
)

var kinds = [...]string{"ww", "wr", "rw", "time"}

type edge struct{ to, kind int }

// graph has the transactions as its first nodes, and behind them a chain of the moments at which
// they were sent: a path over moments leads from a transaction to each that was sent after its
// answer, without an edge for each pair.
type graph struct {
	txns []*Txn
	out  [][]edge
}

func (v *versions) graph(txns []*Txn) *graph {
	g := &graph{}
	node := map[*Txn]int{}
	for _, t := range txns {
		if v.happened(t) {
			node[t] = len(g.txns)
			g.txns = append(g.txns, t)
		}
	}
	g.out = make([][]edge, len(g.txns))
	for key, list := range v.final {
		for i := 1; i < len(list); i++ {
			g.add(node[v.by[element{key, list[i-1]}]], node[v.by[element{key, list[i]}]], order)
		}
	}
	for i, t := range g.txns {
		if t.Outcome == OK {
			v.reads(g, node, i)
		}
	}
	g.moments()
	return g
}

func (g *graph) add(a, b, kind int) {
	if a != b {
		g.out[a] = append(g.out[a], edge{b, kind})
	}
}

func (v *versions) reads(g *graph, node map[*Txn]int, i int) {
	for _, s := range g.txns[i].Steps {
		if s.Append != 0 {
			continue
		}
		list := v.final[s.Key]
		if n := len(s.Read); n > 0 {
			g.add(node[v.by[element{s.Key, list[n-1]}]], i, from)
		}
		if n := len(s.Read); n < len(list) {
			g.add(i, node[v.by[element{s.Key, list[n]}]], before)
		}
	}
}

func (g *graph) moments() {
	sent := make([]int, len(g.txns))
	for i := range sent {
		sent[i] = i
	}
	slices.SortFunc(sent, func(a, b int) int { return cmp.Compare(g.txns[a].Sent, g.txns[b].Sent) })
	first := len(g.txns)
	for i, t := range sent {
		g.out = append(g.out, []edge{{t, time}})
		if i > 0 {
			g.add(first+i-1, first+i, time)
		}
	}
	for i, t := range g.txns {
		if t.Outcome != OK {
			continue
		}
		at, _ := slices.BinarySearchFunc(sent, t.Answered+1, func(s int, at int64) int { return cmp.Compare(g.txns[s].Sent, at) })
		if at < len(sent) {
			g.add(i, first+at, time)
		}
	}
}

// cycle returns the edges of a short cycle, nil if there is none. It prefers cycles without
// "time", then those without "before", so that what it names is the worst anomaly.
func (g *graph) cycle() []step {
	for _, most := range []int{order, from, before, time} {
		left := g.trim(most)
		var best []step
		for n, isLeft := range left {
			if !isLeft {
				continue
			}
			if c := g.shortest(n, most, left); c != nil && (best == nil || len(c) < len(best)) {
				best = c
			}
		}
		if best != nil {
			return best
		}
	}
	return nil
}

// step is one edge of a cycle.
type step struct{ from, to, kind int }

// trim leaves the nodes that are reached from a cycle, by edges of kinds up to most: it takes
// away, over and over, those to which no edge leads (Kahn).
func (g *graph) trim(most int) (left []bool) {
	degree := make([]int, len(g.out))
	for _, edges := range g.out {
		for _, e := range edges {
			if e.kind <= most {
				degree[e.to]++
			}
		}
	}
	left = make([]bool, len(g.out))
	var free []int
	for n := range g.out {
		left[n] = true
		if degree[n] == 0 {
			free = append(free, n)
		}
	}
	for len(free) > 0 {
		n := free[len(free)-1]
		free = free[:len(free)-1]
		left[n] = false
		for _, e := range g.out[n] {
			if e.kind > most {
				continue
			}
			if degree[e.to]--; degree[e.to] == 0 {
				free = append(free, e.to)
			}
		}
	}
	return left
}

// shortest is a shortest cycle through a node, among those that are left.
func (g *graph) shortest(root, most int, left []bool) []step {
	came := map[int]step{}
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, e := range g.out[queue[0]] {
			if _, seen := came[e.to]; seen || e.kind > most || !left[e.to] {
				continue
			}
			came[e.to] = step{queue[0], e.to, e.kind}
			if e.to == root {
				return trail(came, root)
			}
			queue = append(queue, e.to)
		}
	}
	return nil
}

func trail(came map[int]step, root int) []step {
	c := []step{came[root]}
	for c[0].from != root {
		c = slices.Insert(c, 0, came[c[0].from])
	}
	return c
}

// classify names a cycle as Adya and Elle do.
func (g *graph) classify(c []step) error {
	var count [len(kinds)]int
	var b strings.Builder
	for _, s := range c {
		count[s.kind]++
		if s.from < len(g.txns) {
			fmt.Fprintf(&b, "\n  %v\n    %s", g.txns[s.from], kinds[s.kind])
		}
	}
	kind := "G2"
	switch {
	case count[before] == 1:
		kind = "G-single"
	case count[before] == 0 && count[from] > 0:
		kind = "G1c"
	case count[before] == 0:
		kind = "G0"
	}
	if count[time] > 0 {
		kind += "-realtime"
	}
	return anomaly(kind, "a cycle:%s", b.String())
}
