package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/stoa-kv/stoa/test/process"
)

// sample is one round of one cell on one subject; what it gives per operation is per
// increment, per element (added and removed), per entrance, per change of leader.
type sample struct {
	rate    float64 // operations per second
	p50     time.Duration
	p99     time.Duration
	calls   float64 // per operation
	retries float64 // per operation
	sent    float64 // bytes that the clients wrote, per operation
	cpu     time.Duration
	load    time.Duration // CPU of this program, per operation
}

// cell is one line of the report for each subject.
type cell struct {
	nodes   int
	recipe  string
	clients int
	samples map[string][]sample // by subject; missing where it could not be measured
}

// runNodes measures all cells of one cluster size.
func runNodes(ctx context.Context, p *plan, nodes int, rep *report) (err error) {
	cs := clusters{}
	defer func() { cs.close(err != nil && ctx.Err() == nil) }()
	var subjects []*subject
	for _, name := range p.subjects {
		s, err := open(ctx, p, name, cs, nodes)
		if errors.Is(err, process.ErrNoJava) {
			fmt.Fprintf(os.Stderr, "%s %v\n", titles[name], err)
			rep.skip(titles[name], err)
			continue
		}
		if err != nil {
			return err
		}
		defer s.close()
		for name, why := range s.without {
			rep.skip(fmt.Sprintf("%s of the %s", titles[s.name], name), why)
		}
		subjects = append(subjects, s)
	}
	for _, name := range p.recipes {
		if err := heat(ctx, p, nodes, name, subjects); err != nil {
			return err
		}
		for _, clients := range p.clients {
			c := cell{nodes: nodes, recipe: name, clients: clients, samples: map[string][]sample{}}
			for range p.rounds {
				if err := c.round(ctx, p, subjects); err != nil {
					return err
				}
			}
			rep.cells = append(rep.cells, c)
			rep.line(os.Stderr, c)
		}
	}
	return nil
}

// heat runs a recipe with all clients and forgets what it measured: a JVM is slow
// until it has compiled what it runs.
func heat(ctx context.Context, p *plan, nodes int, name string, subjects []*subject) error {
	hot := *p
	hot.length = p.heat
	c := cell{nodes: nodes, recipe: name, clients: slices.Max(p.clients), samples: map[string][]sample{}}
	return c.round(ctx, &hot, subjects)
}

// round measures the cell once on every subject.
func (c *cell) round(ctx context.Context, p *plan, subjects []*subject) error {
	for _, s := range subjects {
		if s.without[c.recipe] != nil {
			continue
		}
		got, err := s.round(ctx, p, c.recipe, c.clients)
		if err != nil {
			return fmt.Errorf("%s, %d servers, %s by %d clients: %w", titles[s.name], c.nodes, c.recipe, c.clients, err)
		}
		c.samples[s.name] = append(c.samples[s.name], got)
	}
	return nil
}

// roundGrace is the time that a round may take beyond its planned length before
// it counts as stuck.
const roundGrace = 30 * time.Second

// round puts the clients to work for a while, measures the middle of it and checks
// what came of all of it.
func (s *subject) round(ctx context.Context, p *plan, name string, clients int) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, p.warmup+p.length+roundGrace)
	defer cancel()
	w := newWorkload(name)
	if err := w.begin(ctx, s.referee, s.kits[:clients]); err != nil {
		return sample{}, err
	}
	rec := &recorder{}
	done := make(chan error, 1)
	go func() { done <- w.run(ctx, rec) }()

	got, err := s.window(ctx, p, clients, rec, done)
	if err != nil {
		return sample{}, err
	}
	rec.stop()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = fmt.Errorf("the clients do not come to an end: %w", ctx.Err())
	}
	if err != nil {
		return sample{}, err
	}
	if err := w.check(ctx); err != nil {
		return sample{}, fmt.Errorf("WRONG: %w", err)
	}
	return got, nil
}

// window measures what happens between two moments of a round.
func (s *subject) window(ctx context.Context, p *plan, clients int, rec *recorder, done chan error) (sample, error) {
	if err := pause(ctx, p.warmup, done); err != nil {
		return sample{}, err
	}
	before, err := s.look(clients)
	if err != nil {
		return sample{}, err
	}
	rec.record(true)
	start := time.Now()
	// On a machine that is busy with other things a meeting of all can take longer.
	for empty := true; empty; empty = rec.count() == 0 {
		if err := pause(ctx, p.length, done); err != nil {
			return sample{}, err
		}
	}
	rec.record(false)
	took := time.Since(start)
	after, err := s.look(clients)
	if err != nil {
		return sample{}, err
	}
	latencies, busy := rec.recorded()
	if busy > 0 {
		took = busy
	}
	slices.Sort(latencies)
	n := len(latencies)
	return sample{
		rate:    float64(n) / took.Seconds(),
		p50:     latencies[n/2],
		p99:     latencies[n*99/100],
		calls:   float64(after.calls-before.calls) / float64(n),
		retries: float64(after.retries-before.retries) / float64(n),
		sent:    float64(after.sent-before.sent) / float64(n),
		cpu:     (after.cpu - before.cpu) / time.Duration(n),
		load:    (after.load - before.load) / time.Duration(n),
	}, nil
}

// pause waits, unless the clients end before.
func pause(ctx context.Context, d time.Duration, done chan error) error {
	select {
	case <-time.After(d):
		return nil
	case err := <-done:
		return errors.Join(errors.New("the clients ended before their time"), err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look is where the counters stand.
type look struct {
	calls, retries, sent int64
	cpu, load            time.Duration
}

func (s *subject) look(clients int) (look, error) {
	var l look
	for i := range clients {
		t := s.kits[i].Tally().Now()
		l.calls += t.Calls
		l.retries += t.Retries
		l.sent += s.taps[i].Sent()
	}
	l.load = ownCPU()
	var err error
	l.cpu, err = s.cluster.CPU()
	return l, err
}

// ownCPU is the CPU time of this process: what the load costs to generate.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// recorder takes the latencies of all clients, while it is on.
type recorder struct {
	mu        sync.Mutex
	on, off   bool
	latencies []time.Duration
	busy      time.Duration
}

func (r *recorder) record(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.on = on
}

func (r *recorder) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.off = true
}

func (r *recorder) stopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.off
}

func (r *recorder) add(d ...time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.on {
		r.latencies = append(r.latencies, d...)
	}
}

// during is add for operations that were done together in the given time; what lies
// between such times does not count for the throughput.
func (r *recorder) during(busy time.Duration, d []time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.on {
		r.latencies = append(r.latencies, d...)
		r.busy += busy
	}
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.latencies)
}

func (r *recorder) recorded() ([]time.Duration, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.latencies), r.busy
}
