package sim

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/sim/cover"
)

// runGuided makes runs that a guide chooses.
func runGuided(t *testing.T, kind func(Options) Options) (sum Stats) {
	g, err := loadGuide(*guiding)
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(*seed, 1))
	known, news := len(g.Reached), 0
	for i := range *runs {
		at, turns := g.next(rng, *seed+uint64(i))
		o := kind(options(t, at))
		o.Turns = turns
		cover.Take()
		sum.add(attempt(t, o))
		steps := cover.Take()
		require.NotEmpty(t, steps, "this build notes nothing: it lacks the overlay of package cover")
		n := g.learn(rng, at, turns, steps)
		if turns != nil {
			news += n
		}
	}
	require.NoError(t, g.save(*guiding))
	fmt.Printf("%d steps are known, %d of them new, %d of these by turns\n", len(g.Reached), len(g.Reached)-known, news)
	return sum
}

// A run with turns is itself up to the first, another one from there on, and repeats itself.
func TestTurns(t *testing.T) {
	o := Options{Seed: 5}
	whole := Run(o)
	late := o
	late.Turns = []Turn{{time.Hour, 1}}
	require.Equal(t, whole.Trace, Run(late).Trace)
	turned := o
	turned.Turns = []Turn{{700 * time.Millisecond, 1}, {time.Second, 2}}
	a, b := Run(turned), Run(turned)
	require.NoError(t, a.Failure)
	require.Equal(t, a.Trace, b.Trace)
	require.NotEqual(t, whole.Trace, a.Trace)

	parsed, err := parseTurns(formatTurns(turned.Turns))
	require.NoError(t, err)
	require.Equal(t, turned.Turns, parsed)
	for _, wrong := range []string{"7", "1s", "1s:x", "2s:1,1s:1"} {
		_, err = parseTurns(wrong)
		require.ErrorContains(t, err, "-turns", wrong)
	}
}

func TestGuide(t *testing.T) {
	file := filepath.Join(t.TempDir(), "guide")
	g, err := loadGuide(file)
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 1))
	seed, turns := g.next(rng, 7)
	require.EqualValues(t, 7, seed)
	require.Empty(t, turns)
	for s := range uint64(100) { // step 1000 is rare, all others aren't
		var steps []cover.Step
		for n := range uint32(drawn) {
			steps = append(steps, cover.Step{Number: n, At: time.Second})
		}
		if s == 33 {
			steps = append(steps, cover.Step{Number: 1000, At: 2 * time.Second})
		}
		g.learn(rng, s, []Turn{{time.Second, 9}}, steps)
	}
	require.NoError(t, g.save(file))
	g, err = loadGuide(file)
	require.NoError(t, err)
	rare, fresh := 0, 0
	for range 1000 {
		seed, turns := g.next(rng, 1000)
		switch {
		case seed == 1000:
			fresh++
			require.Empty(t, turns)
		case seed == 33 && len(turns) == 2 && turns[1].At > time.Second+behind:
			rare++
			require.Equal(t, Turn{time.Second, 9}, turns[0])
			require.InDelta(t, 2*time.Second, turns[1].At, float64(behind))
		}
	}
	require.InDelta(t, 500, fresh, 100)
	require.Greater(t, rare, 50)
}
