package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/stoa-kv/stoa/internal/store"
)

// candidate is a script with what a run of it took.
type candidate struct {
	setup, loop []string
	used
	score float64
}

func (c *candidate) body() string {
	return declarations + strings.Join(c.setup, "\n") + "\nwhile true do\n" + strings.Join(c.loop, "\n") + "\nend"
}

// goal is what a search makes as large as it can.
type goal struct {
	name  string
	score func(u used) float64
	best  []candidate // from the best
}

// pool is how many candidates of a goal go on.
const pool = 24

// searchFor makes scripts, keeps those for which a step takes longest or a byte most
// memory, and changes them. It prints the best of both as it finds them.
func searchFor(d time.Duration, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	s := store.New(nil)
	filled(1000, "/k/%d", 100)(s)
	goals := []*goal{
		{name: "ns/step", score: used.perStep},
		{name: "bytes/byte", score: used.perByte},
	}
	tried := 0
	for until := time.Now().Add(d); time.Now().Before(until); tried++ {
		g := goals[tried%len(goals)]
		c := g.next(r)
		c.measure(keys{s}, g)
		if len(g.best) == pool && c.score <= g.best[pool-1].score {
			continue
		}
		c.measure(keys{s}, g) // once more: the first may have been a disturbance
		first := len(g.best) == 0 || c.score > g.best[0].score
		g.keep(c)
		if first {
			fmt.Printf("after %d: %.2f %s\n%s\n\n", tried, c.score, g.name, c.body())
		}
	}
	fmt.Printf("%d scripts\n", tried)
	for _, g := range goals {
		g.again(keys{s})
		for _, c := range g.best[:min(3, len(g.best))] {
			fmt.Printf("%.2f %s\n%s\n\n", c.score, g.name, c.body())
		}
	}
}

func (g *goal) keep(c candidate) {
	g.best = append(g.best, c)
	g.sort()
	g.best = g.best[:min(pool, len(g.best))]
}

func (g *goal) sort() {
	slices.SortStableFunc(g.best, func(a, b candidate) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return 0
	})
}

// again measures the best once more, with more care.
func (g *goal) again(k keys) {
	for i := range g.best {
		c := &g.best[i]
		if p, err := compile(c.body(), nil, k, limits); err == nil {
			c.score = g.score(p.median(9))
		}
	}
	g.sort()
}

// next is a new candidate, or a change of a good one.
func (g *goal) next(r *rand.Rand) candidate {
	if len(g.best) < pool || r.IntN(8) == 0 {
		return candidate{setup: statements(r, 1+r.IntN(4)), loop: statements(r, 1+r.IntN(4))}
	}
	a, b := g.best[r.IntN(pool)], g.best[r.IntN(pool)]
	c := candidate{setup: slices.Clone(a.setup), loop: slices.Clone(a.loop)}
	if r.IntN(4) == 0 {
		c.setup = slices.Clone(b.setup)
	}
	change(r, &c.setup)
	change(r, &c.loop)
	return c
}

// change adds, drops or replaces a statement, or does nothing.
func change(r *rand.Rand, list *[]string) {
	at := r.IntN(len(*list) + 1)
	switch r.IntN(4) {
	case 0:
		*list = slices.Insert(*list, at, statements(r, 1)...)
	case 1:
		if at < len(*list) && len(*list) > 1 {
			*list = slices.Delete(*list, at, at+1)
		}
	case 2:
		if at < len(*list) {
			(*list)[at] = statements(r, 1)[0]
		}
	}
}

// measure gives a score of 0 to what doesn't compile or ends before its steps do.
func (c *candidate) measure(k keys, g *goal) {
	l := limits
	l.Steps = 300_000
	p, err := compile(c.body(), nil, k, l)
	if err != nil {
		c.score = 0
		return
	}
	u := p.run()
	for range 2 {
		if again := p.run(); again.nanoseconds < u.nanoseconds {
			u = again
		}
	}
	if u.steps < l.Steps*3/4 {
		c.score = 0
		return
	}
	c.used, c.score = u, g.score(u)
}
