package osc

import (
	"fmt"
	"slices"
	"strings"
)

// Violation is a cycle of operations each of which has to precede the next.
type Violation struct {
	Cycle []*Op
	Why   []string // Why[i]: from Cycle[i] to the next one
}

func (v *Violation) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "INCONSISTENT: no order explains these %d operations:", len(v.Cycle))
	for i, o := range v.Cycle {
		fmt.Fprintf(&b, "\n  %v\n    stands before the following (%s)", o, reasons[v.Why[i]])
	}
	fmt.Fprintf(&b, ", which is the first again")
	return b.String()
}

// reasons are the edges in words.
var reasons = map[string]string{
	"order":    "revisions of one cluster",
	"program":  "program order",
	"answered": "answered before that was sent",
	"from":     "that shows what this wrote",
	"before":   "this shows what was there before that",
}

// Check says whether a history that was resolved is consistent. The error is a *Violation,
// or tells of a version that can't have been read or written.
func Check(ops []*Op) error {
	g, err := build(ops)
	if err != nil {
		return err
	}
	left := g.unordered()
	if left == nil {
		return nil
	}
	return g.cycle(left)
}

// unordered takes away node after node that nothing stands before. What remains
// are the nodes on cycles or behind them; nil if none.
func (g *graph) unordered() []bool {
	before := make([]int, len(g.out))
	for _, edges := range g.out {
		for _, to := range edges {
			before[to]++
		}
	}
	var free []int
	for n, count := range before {
		if count == 0 {
			free = append(free, n)
		}
	}
	taken := 0
	for len(free) > 0 {
		n := free[len(free)-1]
		free = free[:len(free)-1]
		taken++
		for _, to := range g.out[n] {
			if before[to]--; before[to] == 0 {
				free = append(free, to)
			}
		}
	}
	if taken == len(g.out) {
		return nil
	}
	left := make([]bool, len(g.out))
	for n, count := range before {
		left[n] = count > 0
	}
	return left
}

// cycle finds a short cycle among the remaining nodes.
func (g *graph) cycle(left []bool) *Violation {
	v := &Violation{}
	for _, s := range g.shrink(g.shortest(g.onCycle(left))) {
		v.Cycle, v.Why = append(v.Cycle, g.ops[s.node]), append(v.Why, s.why)
	}
	return v
}

// onCycle walks back from a remaining node. Each of them has a remaining
// predecessor, so the walk reaches a node for the second time, and that is on a
// cycle.
func (g *graph) onCycle(left []bool) int {
	back := make([]int, len(g.out))
	at := 0
	for n, edges := range g.out {
		if !left[n] {
			continue
		}
		at = n
		for _, to := range edges {
			back[to] = n
		}
	}
	for seen := make([]bool, len(g.out)); !seen[at]; at = back[at] {
		seen[at] = true
	}
	return at
}

// step is a node of a cycle and the reason for which it precedes the next one.
type step struct {
	node int
	why  string
}

// shortest is the operations on the shortest cycle through a node that is on one.
func (g *graph) shortest(start int) []int {
	came := make([]int, len(g.out)) // from where, one more than the node; 0: not yet
	for queue := []int{start}; came[start] == 0; queue = queue[1:] {
		for _, to := range g.out[queue[0]] {
			if came[to] == 0 {
				came[to] = queue[0] + 1
				queue = append(queue, to)
			}
		}
	}
	var cycle []int
	for at, first := start, true; first || at != start; first = false {
		if at < len(g.ops) { // not a moment
			cycle = append(cycle, at)
		}
		at = came[at] - 1
	}
	slices.Reverse(cycle)
	return cycle
}

// shrink makes the cycle as short as it can be made of its operations: the edges of the
// graph lead to what is next, but a reason holds for all that comes behind that, too.
func (g *graph) shrink(cycle []int) []step {
	best := g.through(cycle[0], cycle)
	for shorter := true; shorter; {
		shorter = false
		for _, s := range best {
			if c := g.through(s.node, cycle); len(c) < len(best) {
				best, shorter = c, true
			}
		}
	}
	return best
}

// through is the shortest cycle, by all that is a reason, of some of the operations of
// a cycle, one of them given.
func (g *graph) through(start int, cycle []int) []step {
	came := map[int]step{}
	for queue := []int{start}; came[start] == (step{}); queue = queue[1:] {
		for _, to := range cycle {
			if _, ok := came[to]; ok {
				continue
			}
			if why := g.reason(queue[0], to); why != "" {
				came[to] = step{queue[0], why}
				queue = append(queue, to)
			}
		}
	}
	var way []step
	for at, first := start, true; first || at != start; first = false {
		way = append(way, came[at])
		at = came[at].node
	}
	slices.Reverse(way)
	return way
}

// reason returns the edge of the graph by which an operation precedes another,
// if there is one.
func (g *graph) reason(from, to int) string {
	a, b := g.ops[from], g.ops[to]
	switch {
	case a.Client == b.Client && from < to && !a.Failed:
		return "program"
	case a.Cluster == b.Cluster && a.Update && b.Update && a.Revision < b.Revision:
		return "order"
	case a.Cluster == b.Cluster && a.Update != b.Update:
		for key, v := range a.Keys {
			w, both := b.Keys[key]
			if both && a.Update && w.Mod == a.Revision {
				return "from"
			}
			if both && b.Update && v.Mod < b.Revision {
				return "before"
			}
		}
	}
	if b.Update && a.End < b.Start {
		return "answered"
	}
	return ""
}
