package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/stoa-kv/stoa/internal/extension"
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

// goal is what a search makes as large as it can, and how large it may become.
type goal struct {
	name  string
	most  float64
	score func(u, reference used) float64
	best  []candidate // from the best
}

// pool is how many candidates of a goal go on.
const pool = 24

// reference takes about the mean time per step of all probes. The time of a candidate is
// compared with it, since a busy machine is slower for both.
var reference = probe{name: "reference", setup: "local s = 'a'", unit: "for i = 1, 100 do local b = s .. i end"}

// search makes scripts, keeps those for which a step takes longest or a byte most
// memory, and changes them.
type search struct {
	keys      keys
	reference *program
	random    *rand.Rand
	goals     []*goal
}

func newSearch(seed uint64, factor float64) *search {
	s := &search{keys: keys{store.New(nil)}, random: rand.New(rand.NewPCG(seed, 1)), goals: []*goal{
		{name: "reference steps/step", most: factor, score: func(u, r used) float64 { return u.perStep() / r.perStep() }},
		{name: "bytes/byte", most: maxPerByte, score: func(u, _ used) float64 { return u.perByte() }},
	}}
	filled(1000, "/k/%d", 100)(s.keys.Store)
	var err error
	if s.reference, err = compile(reference.body(), nil, s.keys, shorter()); err != nil {
		panic(err)
	}
	return s
}

// lookAgain is after how many candidates the best are measured again.
const lookAgain = 1000

// shorter are limits for many scripts.
func shorter() (l extension.Limits) {
	l = limits
	l.Steps = 300_000
	return l
}

// run searches for so long. It prints the best as it finds them, and in the end tells whether
// the very best, measured with more care, are within the bounds.
func (s *search) run(d time.Duration) (good bool) {
	tried := 0
	for until := time.Now().Add(d); time.Now().Before(until); tried++ {
		g := s.goals[tried%len(s.goals)]
		if tried%lookAgain >= lookAgain-len(s.goals) {
			s.again(g) // of each goal in turn: all others are made of the best, which a disturbance may have made so
		}
		if c, first := s.try(g); first {
			fmt.Printf("after %d: %.2f %s\n%s\n\n", tried, c.score, g.name, c.body())
		}
	}
	fmt.Printf("%d scripts\n", tried)
	good = true
	for _, g := range s.goals {
		s.again(g)
		for _, c := range g.best[:min(3, len(g.best))] {
			fmt.Printf("%.2f %s\n%s\n\n", c.score, g.name, c.body())
		}
		verdict := "within"
		if g.best[0].score > g.most {
			verdict, good = "beyond", false
		}
		fmt.Printf("maximum: %.2f %s, %s the bound of %.2f\n\n", g.best[0].score, g.name, verdict, g.most)
	}
	return good
}

// try makes a candidate for a goal, keeps it if it is good, and tells whether it is the best.
func (s *search) try(g *goal) (c candidate, first bool) {
	c = g.next(s.random)
	s.measure(&c, g, 2)
	if len(g.best) == pool && c.score <= g.best[pool-1].score {
		return c, false
	}
	s.measure(&c, g, 5) // the first may have been a disturbance
	first = len(g.best) == 0 || c.score > g.best[0].score
	g.keep(c)
	return c, first
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
func (s *search) again(g *goal) {
	for i := range g.best {
		s.measure(&g.best[i], g, 15)
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
func (s *search) measure(c *candidate, g *goal, runs int) {
	c.score = 0
	p, err := compile(c.body(), nil, s.keys, shorter())
	if err != nil {
		return
	}
	u, r := p.against(s.reference, runs)
	if u.steps >= shorter().Steps*3/4 {
		c.used, c.score = u, g.score(u, r)
	}
}
