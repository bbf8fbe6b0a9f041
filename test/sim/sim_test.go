package sim

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	seed    = flag.Uint64("seed", 1, "the first seed")
	runs    = flag.Int("runs", 40, "how many seeds to run")
	servers = flag.Int("servers", 0, "servers in each run (default: as the seed says)")
	parts   = flag.Int("partitions", 0, "partitions in each run (default: as the seed says)")
	members = flag.Bool("members", false, "change the members in each run (default: as the seed says)")
	balance = flag.Bool("balance", false, "move slots at random in each run (default: as the seed says)")
	resize  = flag.Bool("resize", false, "change the number of partitions in each run (default: as the seed says)")
	checks  = flag.Bool("checks", false, "compare and change the states of servers in each run (default: as the seed says)")
	users   = flag.Bool("users", false, "let clients be users in each run (default: as the seed says)")
	levels  = flag.Bool("versions", false, "change the version of the cluster in each run")
	inFiles = flag.Bool("files", false, "have real files, which are defragmented, in each run (default: as the seed says)")
	swarm   = flag.Bool("swarm", false, "have only some of all features, faults and requests in each run: the seed decides for each")
	only    = flag.String("only", "", "the troubles that happen, as 3,7,12 or none (default: all)")
	length  = flag.Duration("length", 0, "end troubles and requests at this simulated time (default: as the seed says)")
	turns   = flag.String("turns", "", "when the run goes on as others do, as 310ms:7,1.2s:99 (default: never)")
	guiding = flag.String("guide", "", "choose runs by what few have reached, and keep this in a file (in a build with the overlay of package cover)")
	effort  = flag.Int("minimise", 60, "with how many runs to look for fewer troubles that make a seed fail; 0: don't")
	verbose = flag.Bool("events", false, "print every event of the run")
)

func options(t *testing.T, seed uint64) Options {
	var log io.Writer
	if *verbose {
		log = os.Stderr
	}
	chosen, err := parseOnly(*only)
	require.NoError(t, err)
	later, err := parseTurns(*turns)
	require.NoError(t, err)
	return Options{Seed: seed, Turns: later, Only: chosen, Length: *length, Servers: *servers, Partitions: *parts, Members: *members, Users: *users, Balance: *balance, Resize: *resize, Checks: *checks, Versions: *levels, Files: *inFiles, Swarm: *swarm, Log: log, Mutation: chosenMutation(t)}
}

func TestSim(t *testing.T) {
	runAll(t, func(o Options) Options { return o })
}

// runAll makes all runs that the flags ask for, of some kind.
func runAll(t *testing.T, kind func(Options) Options) (sum Stats) {
	if *guiding != "" {
		sum = runGuided(t, kind)
	} else {
		for i := range *runs {
			sum.add(attempt(t, kind(options(t, *seed+uint64(i)))))
		}
	}
	fmt.Printf("%d seeds from %d: %s\n", *runs, *seed, sum)
	return sum
}

// mostMinimised is how many seeds of a process are minimised: a fault may show in all.
const mostMinimised = 3

var failures int

// attempt makes a run. If it fails, it says what the least is that makes it fail.
func attempt(t *testing.T, o Options) Stats {
	r := Run(o)
	if r.Failure == nil {
		return r.Stats
	}
	t.Error(r.Failure)
	if failures++; failures <= mostMinimised && *effort > 0 && o.Only == nil {
		t.Log(minimise(o, r, *effort).describe(otherFlags(t)))
	}
	return r.Stats
}

// otherFlags are those that say what kind of run it is.
func otherFlags(t *testing.T) (s string) {
	flag.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "seed", "runs", "only", "length", "turns", "guide", "minimise", "events":
		default:
			if !strings.HasPrefix(f.Name, "test.") {
				s += fmt.Sprintf(" -%s=%v", f.Name, f.Value)
			}
		}
	})
	return fmt.Sprintf("%s -run=^%s$", s, t.Name())
}

// One server of each run is forced to be a cluster of its own, and grows again.
func TestForce(t *testing.T) {
	sum := runAll(t, forced)
	require.Positive(t, sum.Lost, "no survivor lacked anything")
}

func forced(o Options) Options {
	o.Force, o.Members = true, o.Members || o.Seed%2 == 0
	o.Resize = o.Resize || o.Seed%4 == 3
	if o.Servers == 0 {
		o.Servers = []int{3, 5}[o.Seed%2]
	}
	if o.Partitions == 0 {
		o.Partitions = []int{1, 2, 4, 4}[o.Seed/2%4]
	}
	return o
}

// A seed is a whole run: what fails once fails again.
func TestReplay(t *testing.T) {
	for i := range 2 {
		a, b := Run(options(t, *seed+uint64(i))), Run(options(t, *seed+uint64(i)))
		require.Equal(t, a.Trace, b.Trace, "seed %d doesn't repeat itself", a.Seed)
	}
}
