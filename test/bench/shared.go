package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/stoa-kv/stoa/test/process"
)

// sharedGoal is how many writes per second each part must be good for that all partitions of a
// server share.
const sharedGoal = 1_000_000

// sharedPart is one of them, and its benchmark.
type sharedPart struct {
	name, pkg, benchmark string
	operations           int // of a round
}

var sharedParts = []sharedPart{
	{"sequencer", "./internal/sequencer", "Shared", 4_000_000},
	{"WAL's writer, 8 B, without the sync", "./internal/wal", "Shared/sync=false/value=8", 1_000_000},
	{"WAL's writer, 256 B, without the sync", "./internal/wal", "Shared/sync=false/value=256", 500_000},
	{"WAL's writer, 8 B", "./internal/wal", "Shared/sync=true/value=8", 1_000_000},
	{"WAL's writer, 256 B", "./internal/wal", "Shared/sync=true/value=256", 500_000},
	{"flush, 8 B", "./internal/backend", "Shared/value=8", 200_000},
	{"flush, 256 B", "./internal/backend", "Shared/value=256", 200_000},
	{"watch hub, nothing watched", "./internal/watch", "Shared/watched=nothing", 1_000_000},
	{"watch hub, other keys watched", "./internal/watch", "Shared/watched=other", 1_000_000},
}

// profileLength is for how long a server is profiled at least: a hundred samples for each second of
// CPU time.
const profileLength = 6 * time.Second

// sharedAt are the numbers of partitions at which they are measured.
var sharedAt = []int{1, 2, 4, 8, 16}

// stage is a part of the way of a put.
type stage struct {
	name string
	// of is its part of a server's CPU time.
	of func(p *profile) float64
	// bound is how many puts per second the stage is good for, of so much CPU time for each; nil: any
	// core can take part.
	bound func(cpu time.Duration, cores int) float64
}

const (
	inLoops  = "replica.(*Replica).Work"
	inWAL    = "node.(*disk).run"
	inFlush  = "node.(*Node).flushLoop"
	inHub    = "watch.(*Hub).Run"
	inMarker = "runtime.gcBgMarkWorker"
)

func sum(p *profile, functions ...string) (all float64) {
	for _, f := range functions {
		all += p.share(f)
	}
	return all
}

func inSequencer(p *profile) float64 {
	return sum(p, "sequencer.(*Sequencer).Reserve", "sequencer.(*Sequencer).Commit", "sequencer.(*Sequencer).Applied", "sequencer.(*Sequencer).Closed", "sequencer.(*Sequencer).Queue")
}

func inApply(p *profile) float64 {
	return sum(p, "apply.(*Machine).Local", "apply.(*Machine).Rendezvous")
}

func published(p *profile) float64 {
	return sum(p, "watch.(*Feed).Changes", "watch.(*Feed).Advance")
}

// alone is the bound of what one goroutine does.
func alone(cpu time.Duration, _ int) float64 { return 1 / cpu.Seconds() }

// byLoops is the bound of what the loops of a partition for each core do, of 16 at most.
func byLoops(cpu time.Duration, cores int) float64 {
	return float64(min(cores, mostPartitions)) / cpu.Seconds()
}

// stages are those of a put. The loops' are bounded together: see inAllLoops.
var stages = []stage{
	{"gRPC, sessions, waiting for answers", func(p *profile) float64 {
		return 1 - sum(p, inLoops, inWAL, inFlush, inHub, inMarker)
	}, nil},
	{"sequencer, with the encoding of entries", inSequencer, nil},
	{"Raft", func(p *profile) float64 { return max(0, p.share(inLoops)-inApply(p)-inSequencer(p)) }, nil},
	{"apply", func(p *profile) float64 { return max(0, inApply(p)-published(p)) }, nil},
	{"WAL", func(p *profile) float64 { return p.share(inWAL) }, alone},
	{"flush", func(p *profile) float64 { return p.share(inFlush) }, alone},
	{"watch, publishing", published, nil},
	{"watch hub", func(p *profile) float64 { return p.share(inHub) }, alone},
	{"garbage collection", func(p *profile) float64 { return p.share(inMarker) }, nil},
}

// forLoad is what it costs to know how busy slots are, and to balance them: part of other stages, but
// for the loop that decides.
func forLoad(p *profile) float64 {
	return sum(p, "node.(*balancer).weigh", "apply.(*execution).sample", "load.(*Meter).Worked")
}

// loadGoal is the part of a put's CPU time that it may be, while nothing has to move.
const loadGoal = 0.01

var inAllLoops = stage{"the partitions' loops", func(p *profile) float64 { return p.share(inLoops) }, byLoops}

// measureShared measures the stages of a put on one core and two, the shared parts alone, and says
// what that predicts for more.
func measureShared(p *plan) (s section, err error) {
	dir, err := process.TempDir("bench-shared")
	if err != nil {
		return s, err
	}
	defer os.RemoveAll(dir)
	s.rows = [][]string{{"part", "P = 1", "2", "4", "8", "16"}}
	built := map[string]*goBench{}
	for _, part := range sharedParts {
		if !strings.Contains(part.name, p.stalls) {
			continue
		}
		if built[part.pkg] == nil {
			if built[part.pkg], err = buildBench(part.pkg, dir); err != nil {
				return s, err
			}
		}
		if err := s.alone(p, built[part.pkg], part); err != nil {
			return s, err
		}
	}
	if strings.Contains("stages", p.stalls) {
		if err := s.stages(p, dir); err != nil {
			return s, err
		}
	}
	s.text = fmt.Sprintf("Each part that all partitions of a server share, alone: writes per second, the best of %d rounds, on %d cores. The log's writer has rounds of 2,048 writes, the flush cuts of 20,000. "+
		"Stage times are CPU time on a server of one member with 4 partitions, by profiles, for values of %d B: %d clients with unary calls, and %d sessions of depth %d. "+
		"The prediction is a bound, not a forecast: each core is as fast as one of two here, the cores cost each other nothing, there is a partition for each of up to 16, "+
		"and the load generator is elsewhere. Nothing above 2 cores has been measured.",
		p.rounds, len(mustUsable()), p.value, unaryClients, jumpSessions, jumpDepth)
	return s, nil
}

func mustUsable() []int {
	cpus, err := usable()
	if err != nil {
		return nil
	}
	return cpus
}

// alone measures a part by itself.
func (s *section) alone(p *plan, g *goBench, part sharedPart) error {
	row := []string{part.name}
	worst := 0.0
	for _, partitions := range sharedAt {
		name := fmt.Sprintf("%s/P=%d", part.benchmark, partitions)
		best := 0.0
		for range p.rounds {
			got, err := g.run(2, name, fmt.Sprintf("-test.benchtime=%dx", part.operations))
			if err != nil {
				return err
			}
			if got[name].ns == 0 {
				return fmt.Errorf("%s of %s has no result", name, part.pkg)
			}
			best = max(best, 1e9/got[name].ns)
		}
		row = append(row, fmt.Sprintf("%.0f", best))
		if worst == 0 || best < worst {
			worst = best
		}
	}
	fmt.Fprintln(os.Stderr, row)
	s.rows = append(s.rows, row)
	s.verdicts = append(s.verdicts, verdict{goal: "shared parts alone, " + part.name + ": writes/s, at the worst of P = 1…16", asked: fmt.Sprintf("≥ %d", sharedGoal),
		measured: fmt.Sprintf("%.0f", worst), missed: worst < sharedGoal})
	return nil
}

// stages profiles servers on one core and on two.
func (s *section) stages(p *plan, dir string) error {
	for _, what := range []string{"unary puts", "puts over sessions"} {
		var times [2][]time.Duration // by cores and stage
		var all [2]time.Duration
		var profiled [2]float64 // seconds
		for i := range times {
			cpu, prof, err := p.profiledPuts(what, i+1, dir)
			if err != nil {
				return fmt.Errorf("%s on %d cores: %w", what, i+1, err)
			}
			all[i], profiled[i] = cpu, prof.total
			s.verdicts = append(s.verdicts, verdict{goal: fmt.Sprintf("balance, %s on %d core%s, with nothing to move: part of the server's CPU time for load metrics and balancer", what, i+1, plural(i+1)),
				asked: fmt.Sprintf("≤ %.0f %%", 100*loadGoal), measured: fmt.Sprintf("%.2f %%", 100*forLoad(prof)), missed: forLoad(prof) > loadGoal})
			for _, st := range append(stages, inAllLoops) {
				times[i] = append(times[i], time.Duration(st.of(prof)*float64(cpu)))
			}
		}
		text := fmt.Sprintf("| stage of %s | on one core | on two |\n| --- | --- | --- |\n", what)
		for k, st := range stages {
			text += fmt.Sprintf("| %s | %v | %v |\n", st.name, round(times[0][k]), round(times[1][k]))
		}
		text += fmt.Sprintf("| all | %v | %v |\n| CPU time that was profiled | %.1f s | %.1f s |", round(all[0]), round(all[1]), profiled[0], profiled[1])
		s.notes = append(s.notes, text, predicted(what, all[1], times[1]))
	}
	return nil
}

// predicted is what the stage times on two cores allow on more.
func predicted(what string, all time.Duration, times []time.Duration) string {
	text := fmt.Sprintf("| %s, at most | puts/s | bound by |\n| --- | --- | --- |\n", what)
	for _, cores := range []int{2, 4, 8, 16, 32} {
		most, by := float64(cores)/all.Seconds(), "all cores busy"
		for k, st := range append(stages, inAllLoops) {
			if st.bound == nil || times[k] <= 0 {
				continue
			}
			if b := st.bound(times[k], cores); b < most {
				most, by = b, st.name
			}
		}
		text += fmt.Sprintf("| %d cores | %.0f | %s |\n", cores, most, by)
	}
	return text[:len(text)-1]
}

// profiledPuts returns the CPU time of a put on a server that uses so many cores, and where
// it went.
func (p *plan) profiledPuts(what string, cores int, dir string) (cpu time.Duration, prof *profile, err error) {
	mine := *p
	mine.profiles, mine.length = dir, max(p.length, profileLength)
	own := subject{name: "stoa", bin: p.stoa, parts: 4, args: []string{"--balance=on"}, env: []string{fmt.Sprintf("GOMAXPROCS=%d", cores)}}
	a := &arena{p: &mine, nodes: 1}
	if a.stoa, err = newBench(&mine, own, 1); err != nil {
		return 0, nil, err
	}
	defer func() { a.close(err != nil) }()
	if a.keys, err = newKeyspace(directories, p.keys, p.value); err != nil {
		return 0, nil, err
	}
	if a.leader, err = leaderOf(a.stoa.cluster); err != nil {
		return 0, nil, err
	}
	c := byUnary(a.stoa, "stoa", "put", unaryClients)
	if what != "unary puts" {
		c = a.overSessions(work{op: "put", sessions: jumpSessions, depth: jumpDepth, pick: a.keys.ownKeys})
	}
	name := fmt.Sprintf("%s %d", what, cores)
	got, err := mine.profiled(a.stoa.cluster, name, func() (sample, error) { return mine.measure(a.stoa.cluster, c.start) })
	if err != nil {
		return 0, nil, err
	}
	out, err := exec.Command("go", "tool", "pprof", "-top", "-cum", "-nodecount=100000", "-nodefraction=0", filepath.Clean(mine.profileOf(name, "cpu"))).Output()
	if err != nil {
		return 0, nil, fmt.Errorf("reading the profile: %w", err)
	}
	prof, err = readProfile(string(out))
	if err == nil && prof.share(inLoops) == 0 {
		err = errors.New("the profile has nothing of the partitions' loops")
	}
	fmt.Fprintln(os.Stderr, name, got)
	return got.cpu, prof, err
}
