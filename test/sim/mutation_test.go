package sim

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var mutation = flag.String("mutation", "", "run with this seeded bug")

// mutationSeeds is how many seeds a seeded bug may take to be noticed.
var mutationSeeds = flag.Int("mutation-seeds", 300, "how many seeds to try with each seeded bug")

// The checks bite: every seeded bug is noticed.
func TestMutations(t *testing.T) {
	for _, m := range Mutations() {
		t.Run(m.Name, func(t *testing.T) {
			for i := range *mutationSeeds {
				s := uint64(i)
				if i == 0 {
					s = m.Seed
				}
				r := Run(Options{Seed: s, Mutation: m})
				if r.Failure != nil {
					fmt.Printf("%s is noticed after %d seeds: %.200s\n", m.Name, i+1, strings.SplitN(r.Failure.Error(), "\n", 2)[0])
					return
				}
			}
			require.Fail(t, "nobody notices "+m.Name)
		})
	}
}

func chosenMutation(t *testing.T) Mutation {
	for _, m := range Mutations() {
		if m.Name == *mutation {
			return m
		}
	}
	require.Empty(t, *mutation, "there is no such mutation")
	return Mutation{}
}
