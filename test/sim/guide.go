package sim

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/stoa-kv/stoa/test/sim/cover"
)

// guide chooses runs by what those before have reached (package cover): every other one is a new seed, and the
// rest are runs that got somewhere where few have been, and take a turn a little before or after that. It is
// the rare branch of FairFuzz (Lemieux and Sen, ASE 2018), for a seed in the place of an input.
type guide struct {
	Runs    int
	Reached map[uint32]int     // steps, and the runs that have taken them
	Witness map[uint32]witness // one of these runs each
}

// witness is a run that has taken a step.
type witness struct {
	Seed  uint64
	Turns []Turn
	At    time.Duration // when it did so first
}

const (
	mostTurns = 4  // of a run: each makes it longer to tell, and to minimise
	drawn     = 64 // steps, for the rarest of them
	before    = 50 * time.Millisecond
	behind    = 200 * time.Millisecond
)

// next chooses a run. fresh is a seed that no run had.
func (g *guide) next(rng *rand.Rand, fresh uint64) (seed uint64, turns []Turn) {
	if len(g.Witness) == 0 || rng.IntN(2) == 0 {
		return fresh, nil
	}
	w := g.Witness[g.rare(rng)]
	at := max(0, w.At-before+time.Duration(rng.Int64N(int64(before+behind))))
	for _, t := range w.Turns {
		if t.At < at {
			turns = append(turns, t)
		}
	}
	if len(turns) == mostTurns {
		turns = turns[:mostTurns-1]
	}
	return w.Seed, append(turns, Turn{at, rng.Uint64()})
}

// rare draws steps, and returns the one of them that the fewest runs have taken.
func (g *guide) rare(rng *rand.Rand) uint32 {
	steps := slices.Sorted(maps.Keys(g.Reached))
	rarest := steps[rng.IntN(len(steps))]
	for range drawn {
		if s := steps[rng.IntN(len(steps))]; g.Reached[s] < g.Reached[rarest] {
			rarest = s
		}
	}
	return rarest
}

// learn notes what a run has reached.
func (g *guide) learn(rng *rand.Rand, seed uint64, turns []Turn, steps []cover.Step) (news int) {
	g.Runs++
	for _, s := range steps {
		g.Reached[s.Number]++
		// Each of the runs that have taken it is its witness with equal chance.
		if n := g.Reached[s.Number]; rng.IntN(n) == 0 {
			g.Witness[s.Number] = witness{seed, turns, s.At}
			if n == 1 {
				news++
			}
		}
	}
	return news
}

// loadGuide reads one; if there is no file it knows nothing.
func loadGuide(file string) (*guide, error) {
	g := &guide{Reached: map[uint32]int{}, Witness: map[uint32]witness{}}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return g, nil
	}
	if err == nil {
		err = gob.NewDecoder(bytes.NewReader(b)).Decode(g)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return g, nil
}

// save replaces the file.
func (g *guide) save(file string) error {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(g); err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
