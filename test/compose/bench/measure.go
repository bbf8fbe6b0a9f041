package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/stoa-kv/stoa/test/process"
	"github.com/stoa-kv/stoa/test/region"
)

// sample is one round of a mix by one team.
type sample struct {
	region [2]figures
	cpu    time.Duration // of all servers, per request
	// Of the whole round, its warm-up and its end included.
	requests, switches, syncs, resyncs int64
	toReads                            int64 // switches whose first request was a read
	mirrored                           int64 // reads that a mirror has answered
}

// figures of one region's clients.
type figures struct {
	rate     float64 // requests per second
	p50, p99 time.Duration
}

// bench is a run on one kind of server.
type bench struct {
	p *plan
	// What of the plan is measured on this kind of server.
	reads, locals, bursts []int
	server                string
	clusters              [2]*cluster
	teams                 map[string]*team
	rep                   *report
}

// measure does all rounds on one kind of server.
func measure(ctx context.Context, p *plan, server string, world *region.World, rep *report) (err error) {
	b := &bench{p: p, server: server, teams: map[string]*team{}, rep: rep, reads: p.reads, locals: p.locals, bursts: p.bursts}
	if server != p.servers[0] {
		b.reads, b.locals, b.bursts = thin(p.reads), thin(p.locals), ends(p.bursts)
	}
	choice := server
	if server == "stoa" {
		choice = p.stoa
	}
	bin, err := process.Choose(choice)
	if err != nil {
		return err
	}
	defer func() {
		for _, t := range b.teams {
			t.close()
		}
		for _, c := range b.clusters {
			if c != nil {
				c.end(err != nil && ctx.Err() == nil)
			}
		}
	}()
	for i, home := range world.Regions {
		if b.clusters[i], err = startCluster(ctx, bin, home, world.Regions[1-i]); err != nil {
			return fmt.Errorf("starting the cluster in the %s: %w", names[i], err)
		}
		// The eastern cluster has the keys of the western one too, for when it is the
		// only one.
		for keys := 0; keys <= 1-i; keys++ {
			if err := b.clusters[i].fill(ctx, keysOf(p, (i+keys)%2)); err != nil {
				return err
			}
		}
	}
	if p.mirrors {
		end, err := b.mirror(ctx, world)
		if err != nil {
			return err
		}
		defer end()
	}
	for _, way := range p.ways() {
		if b.teams[way], err = assemble(ctx, p, way, bin.Stoa, world, b.clusters); err != nil {
			return err
		}
	}
	if p.mirrors {
		return b.figure3(ctx)
	}
	return b.all(ctx, bin.Stoa)
}

// ways are those that are compared.
func (p *plan) ways() []string {
	if p.mirrors {
		return mirrorWays
	}
	return []string{composed, neverSync, syncAll, stretched, plain}
}

// all does the rounds that the figures need.
func (b *bench) all(ctx context.Context, stoa bool) error {
	if err := b.heat(ctx); err != nil {
		return err
	}
	if err := b.beside(ctx, stoa); err != nil {
		return err
	}
	if err := b.loads(ctx); err != nil {
		return err
	}
	bursts, reads, locals := b.bursts, b.reads, b.locals
	most := slices.Max(bursts)
	for _, read := range reads {
		// Without remote requests a burst is as long as the run. Figure 5; and the
		// stretched cluster, to which all requests are alike.
		if slices.Contains(locals, 100) {
			if err := b.cell(ctx, b.mix(read, 100, 100, most), composed, neverSync, syncAll); err != nil {
				return err
			}
		}
		if err := b.cell(ctx, b.mix(read, 100, 100, most), stretched); err != nil {
			return err
		}
		for _, local := range locals {
			if local == 100 {
				continue
			}
			for _, burst := range bursts { // figure 6, and 7
				if err := b.cell(ctx, b.mix(read, 100, local, burst), composed, neverSync, syncAll); err != nil {
					return err
				}
			}
			if err := b.cell(ctx, b.mix(read, local, local, most), composed); err != nil { // figure 8
				return err
			}
		}
	}
	return nil
}

func (b *bench) mix(read, east, west, burst int) mix {
	return mix{reads: read, local: [2]int{east, west}, burst: burst, window: b.p.window, clients: [2]int{b.p.clients, b.p.clients}}
}

// heat makes all connections and warms the servers up.
func (b *bench) heat(ctx context.Context) error {
	for _, t := range b.teams {
		local := 50
		if t.way == plain {
			local = 100
		}
		if _, err := b.round(ctx, t, mix{reads: 50, local: [2]int{local, local}, burst: 10, window: 10, clients: [2]int{len(t.clients[0]), len(t.clients[1])}, shared: b.p.mirrors}); err != nil {
			return fmt.Errorf("%s, before the first round: %w", t.way, err)
		}
	}
	return nil
}

// beside measures local work by composed and by plain clients, in turn: one request at a
// time, and where a plain client can do that, many.
func (b *bench) beside(ctx context.Context, stoa bool) error {
	windows := []int{1}
	if stoa {
		windows = append(windows, b.p.window)
	}
	for _, window := range windows {
		for _, read := range b.rep.localReads() {
			m := b.mix(read, 100, 100, slices.Max(b.p.bursts))
			m.window = window
			for i := range b.p.rounds {
				// Each comes first in every other pair: what drifts hits both.
				pair := []string{composed, plain}
				if i%2 == 1 {
					pair = []string{plain, composed}
				}
				if err := b.again(ctx, m, pair...); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// loads compares composed and stretched clients, of which there are few or many, with
// work that is local and full of updates: those of the west alone, then of both regions.
func (b *bench) loads(ctx context.Context) error {
	for _, clients := range b.p.loads {
		for _, east := range []int{0, clients} {
			if err := b.cell(ctx, b.rep.under(east, clients), composed, stretched); err != nil {
				return err
			}
		}
	}
	return nil
}

// thin leaves out the second quarter of a list of four or more: what is measured on the
// second kind of server is there to be compared, not to be complete.
func thin(list []int) []int {
	if len(list) < 4 {
		return list
	}
	return slices.Concat(list[:1], list[len(list)/2:])
}

// ends are the first and the last.
func ends(list []int) []int { return slices.Compact([]int{list[0], list[len(list)-1]}) }

// cell measures a mix once by each of some teams.
func (b *bench) cell(ctx context.Context, m mix, ways ...string) error {
	ways = slices.DeleteFunc(ways, func(way string) bool { return len(b.rep.samples[cell{b.server, way, m}]) > 0 })
	return b.again(ctx, m, ways...)
}

func (b *bench) again(ctx context.Context, m mix, ways ...string) error {
	for _, way := range ways {
		s, err := b.round(ctx, b.teams[way], m)
		if err != nil {
			return fmt.Errorf("%s, %d %% reads, %d %% and %d %% local, bursts of %d: %w", way, m.reads, m.local[0], m.local[1], m.burst, err)
		}
		b.rep.add(os.Stderr, cell{b.server, way, m}, s)
	}
	return nil
}

// roundGrace is the time that a round may take beyond its planned length.
const roundGrace = 60 * time.Second

// round lets both regions' clients work and measures the middle of it.
func (b *bench) round(ctx context.Context, t *team, m mix) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, b.p.warmup+b.p.length+roundGrace)
	defer cancel()
	var s sample
	before := t.total()
	g := &gauge{}
	var crew []*worker
	for r, clients := range t.clients {
		for i, c := range clients[:m.clients[r]] {
			crew = append(crew, &worker{region: r, number: i, client: c, rnd: rand.New(rand.NewPCG(uint64(r), uint64(i)))})
		}
	}
	done := make(chan error, len(crew))
	var work sync.WaitGroup
	for _, w := range crew {
		work.Go(func() { done <- w.run(ctx, m, g) })
	}
	cpu, took, err := b.window(ctx, g)
	g.stopped.Store(true)
	work.Wait()
	for range crew {
		if werr := <-done; werr != nil {
			return s, werr
		}
	}
	if err != nil {
		return s, err
	}
	count := 0
	for r := range names {
		var all []time.Duration
		for _, w := range crew {
			if w.region == r {
				all = append(all, w.latencies...)
			}
		}
		count += len(all)
		s.region[r] = summary(all, took)
	}
	s.cpu = cpu / time.Duration(max(count, 1))
	after := t.total()
	s.requests, s.switches, s.syncs, s.resyncs = after.requests-before.requests, after.switches-before.switches, after.syncs-before.syncs, after.resyncs-before.resyncs
	s.toReads, s.mirrored = after.toReads-before.toReads, after.mirrored-before.mirrored
	return s, nil
}

// window records for a while.
func (b *bench) window(ctx context.Context, g *gauge) (cpu, took time.Duration, err error) {
	pause := func(d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := pause(b.p.warmup); err != nil {
		return 0, 0, err
	}
	before, err := b.cpu()
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	g.recording.Store(true)
	err = pause(b.p.length)
	g.recording.Store(false)
	took = time.Since(begun)
	if err != nil {
		return 0, 0, err
	}
	after, err := b.cpu()
	return after - before, took, err
}

func (b *bench) cpu() (time.Duration, error) {
	var sum time.Duration
	for _, c := range b.clusters {
		one, err := c.CPU()
		if err != nil {
			return 0, err
		}
		sum += one
	}
	return sum, nil
}

// total adds up what the clients of a team have counted.
func (t *team) total() (s sample) {
	for _, clients := range t.clients {
		for _, c := range clients {
			one := c.stats()
			s.requests += one.Reads + one.Updates
			s.switches += one.Switches
			s.syncs += one.Syncs
			s.resyncs += one.Resyncs
			s.toReads += c.toReads
			s.mirrored += one.Mirrored
		}
	}
	return s
}

func summary(latencies []time.Duration, took time.Duration) figures {
	if len(latencies) == 0 {
		return figures{}
	}
	slices.Sort(latencies)
	n := len(latencies)
	return figures{rate: float64(n) / took.Seconds(), p50: latencies[n/2], p99: latencies[n*99/100]}
}
