package osc

import (
	"cmp"
	"fmt"
	"slices"
)

// graph has the operations as its first nodes, in the order given, and behind them one
// node for each moment at which an update was sent.
//
// The moments keep "real time" from having as many edges as there are pairs: they are a
// chain in the order of time, an operation leads to the first of them that is after its
// answer, and each leads to its update. So there is a path from an operation over
// moments to an update if and only if the update was sent after the operation's answer,
// and the graph has a cycle if and only if the one with all those edges has.
type graph struct {
	ops []*Op
	out [][]int // by node: those that it has to stand before
}

func (g *graph) add(from, to int) { g.out[from] = append(g.out[from], to) }

// build makes the graph of a history that was resolved. An error names an
// impossible read or write.
func build(ops []*Op) (*graph, error) {
	g := &graph{ops: ops, out: make([][]int, len(ops))}
	if err := g.versions(); err != nil {
		return nil, err
	}
	g.program()
	g.realTime()
	return g, nil
}

// place names a key of a cluster.
type place struct {
	cluster int
	key     string
}

// versions adds the edges "order", "from" and "before".
func (g *graph) versions() error {
	byCluster := map[int][]int{}
	byKey := map[place][]int{} // its updates, by revision
	for i, o := range g.ops {
		if o.Update {
			byCluster[o.Cluster] = append(byCluster[o.Cluster], i)
		}
	}
	for _, updates := range byCluster {
		slices.SortFunc(updates, func(a, b int) int { return cmp.Compare(g.ops[a].Revision, g.ops[b].Revision) })
		for i, at := range updates {
			o := g.ops[at]
			if i > 0 {
				if before := g.ops[updates[i-1]]; before.Revision == o.Revision {
					return fmt.Errorf("TWICE: one revision for %v and %v", before, o)
				}
				g.add(updates[i-1], at)
			}
			for key := range o.Keys {
				p := place{o.Cluster, key}
				byKey[p] = append(byKey[p], at)
			}
		}
	}
	for i, o := range g.ops {
		if o.Update {
			continue
		}
		for key, v := range o.Keys {
			if err := g.readFrom(i, key, v, byKey[place{o.Cluster, key}]); err != nil {
				return err
			}
		}
	}
	return nil
}

// readFrom adds what follows from one key of a read; updates are all those of the key.
func (g *graph) readFrom(read int, key string, v Version, updates []int) error {
	next := 0
	if v.Mod != 0 {
		at, ok := slices.BinarySearchFunc(updates, v.Mod, func(u int, rev int64) int { return cmp.Compare(g.ops[u].Revision, rev) })
		if !ok {
			return fmt.Errorf("NOWHERE: %v: no update wrote %s at revision %d", g.ops[read], key, v.Mod)
		}
		if wrote := g.ops[updates[at]]; wrote.Keys[key].Value != v.Value {
			return fmt.Errorf("ANOTHER: %v: that revision is %v", g.ops[read], wrote)
		}
		g.add(updates[at], read)
		next = at + 1
	}
	if next < len(updates) {
		g.add(read, updates[next])
	}
	return nil
}

// program adds each client's order. Behind an update without an answer its client goes
// on from what came before that.
func (g *graph) program() {
	last := map[int]int{}
	for i, o := range g.ops {
		if before, ok := last[o.Client]; ok {
			g.add(before, i)
		}
		if !o.Failed {
			last[o.Client] = i
		}
	}
}

// realTime adds the moments.
func (g *graph) realTime() {
	var updates []int
	for i, o := range g.ops {
		if o.Update {
			updates = append(updates, i)
		}
	}
	slices.SortFunc(updates, func(a, b int) int { return cmp.Compare(g.ops[a].Start, g.ops[b].Start) })
	first := len(g.out)
	for i, u := range updates {
		g.out = append(g.out, nil)
		g.add(first+i, u)
		if i > 0 {
			g.add(first+i-1, first+i)
		}
	}
	for i, o := range g.ops {
		if o.Failed {
			continue
		}
		at, _ := slices.BinarySearchFunc(updates, o.End+1, func(u int, t int64) int { return cmp.Compare(g.ops[u].Start, t) })
		if at < len(updates) {
			g.add(i, first+at)
		}
	}
}
