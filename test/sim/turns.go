package sim

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Turn is a moment at which a run leaves the one that its seed gives: from there on all chances are those of another
// seed. So a run that got somewhere rare can be gone on with in many ways.
type Turn struct {
	At   time.Duration // in simulated time
	Seed uint64
}

// takeTurns has the loop take turns when they are due.
func (c *cluster) takeTurns(turns []Turn) {
	if len(turns) == 0 {
		return
	}
	c.loop.turn = func() {
		for len(turns) > 0 && turns[0].At <= c.loop.now {
			seed := turns[0].Seed
			turns = turns[1:]
			*c.loop.source = *rand.NewPCG(seed, 0x5704)
			*c.elections = *rand.NewChaCha8(electionSeed(seed, 2))
			c.loop.note(seed)
		}
	}
}

// electionSeed is what Raft draws its election timeouts from.
func electionSeed(seed uint64, use byte) [32]byte {
	return [32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24), byte(seed >> 32), use}
}

// formatTurns and parseTurns are the form of turns as a flag: 310ms:7,1.2s:99.
func formatTurns(turns []Turn) string {
	var parts []string
	for _, t := range turns {
		parts = append(parts, fmt.Sprintf("%v:%d", t.At, t.Seed))
	}
	return strings.Join(parts, ",")
}

func parseTurns(s string) (turns []Turn, err error) {
	if s == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		at, seed, _ := strings.Cut(part, ":")
		var t Turn
		if t.At, err = time.ParseDuration(at); err == nil {
			t.Seed, err = strconv.ParseUint(seed, 10, 64)
		}
		if err != nil {
			return nil, fmt.Errorf("-turns: %q: %w", part, err)
		}
		if len(turns) > 0 && t.At < turns[len(turns)-1].At {
			return nil, fmt.Errorf("-turns: %q comes before the one in front of it", part)
		}
		turns = append(turns, t)
	}
	return turns, nil
}

// start is the seed, and the turns if there are any.
func (o *Options) start() string {
	if len(o.Turns) == 0 {
		return strconv.FormatUint(o.Seed, 10)
	}
	return fmt.Sprintf("%d with -turns=%s", o.Seed, formatTurns(o.Turns))
}
