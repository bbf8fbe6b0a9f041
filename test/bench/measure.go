package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/stoa-kv/stoa/test/process"
)

// sample is one round of one cell on one subject.
type sample struct {
	rate float64       // operations per second
	cpu  time.Duration // of all servers, per operation
	p50  time.Duration
	p99  time.Duration
	load time.Duration // CPU of the load generator, per operation
	busy float64       // part of the machine's CPU time in use
}

// cell is one line of the report.
type cell struct {
	nodes, clients int
	op             string
	samples        [][]sample // by subject
}

// measureUnary measures etcd's API.
func measureUnary(p *plan) (section, error) {
	rep := &report{plan: p, goals: unaryGoals}
	for _, n := range p.nodes {
		if err := runNodes(p, n, rep); err != nil {
			return section{}, err
		}
	}
	return rep.section(), nil
}

// runNodes measures all cells of one cluster size. The clusters of all subjects stand
// side by side; those that are not measured idle.
func runNodes(p *plan, nodes int, rep *report) (err error) {
	var benches []*bench
	defer func() { end(benches, &err) }()
	for _, s := range p.subjects {
		b, err := newBench(p, s, nodes)
		if err != nil {
			return err
		}
		benches = append(benches, b)
	}
	for _, op := range p.ops {
		for _, clients := range p.clients {
			c := cell{nodes: nodes, clients: clients, op: op, samples: make([][]sample, len(benches))}
			for range p.rounds {
				for i, b := range benches {
					s, err := b.round(op, clients)
					if err != nil {
						return fmt.Errorf("%s, %d servers, %s by %d clients: %w", b.subject.name, nodes, op, clients, err)
					}
					c.samples[i] = append(c.samples[i], s)
				}
			}
			rep.cells = append(rep.cells, c)
			rep.line(os.Stderr, c)
		}
	}
	for i, b := range benches {
		rep.memory = append(rep.memory, memory{nodes: nodes, subject: p.subjects[i].name, bytes: b.resident()})
	}
	return nil
}

// bench is one subject's cluster with the connections to it.
type bench struct {
	plan    *plan
	subject subject
	cluster *process.Cluster
	load    *load
	between []*process.Server // sidecars
}

func newBench(p *plan, s subject, nodes int) (*bench, error) {
	dir, err := process.TempDir("bench")
	if err != nil {
		return nil, err
	}
	if p.profiles != "" && s.bin.Stoa {
		s.args = append(slices.Clone(s.args), pprofFlag)
	}
	if s.auth {
		s.args = append(slices.Clone(s.args), authArgs...)
	}
	c, err := process.Start(context.Background(), process.Spec{Binary: s.bin, Nodes: nodes, Partitions: s.parts, Args: s.args, Env: s.env, Dir: dir})
	if err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("starting %s: %w", s.name, err)
	}
	b := &bench{plan: p, subject: s, cluster: c}
	endpoints := c.Endpoints()
	if s.front != "" {
		if b.between, endpoints, err = startFronts(c, s.front); err != nil {
			b.close()
			return nil, fmt.Errorf("starting what is in front: %w", err)
		}
	}
	if b.load, err = newLoad(endpoints, p.keys, p.value); err != nil {
		b.close()
		return nil, err
	}
	if s.auth {
		if b.load.token, err = enableAuth(c); err != nil {
			b.close()
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if err := b.load.fill(); err != nil {
		b.close()
		return nil, fmt.Errorf("filling %s: %w", s.name, err)
	}
	return b, nil
}

func (b *bench) close() {
	for _, s := range b.between {
		_ = s.Kill()
	}
	b.cluster.Close()
}

// end ends all servers, and removes what they left unless something failed.
func end(benches []*bench, err *error) {
	for _, b := range benches {
		b.close()
		if *err == nil {
			os.RemoveAll(b.cluster.Spec.Dir)
		}
	}
}

// pair starts a cluster of etcd and one of stoa, in this order.
func (p *plan) pair(nodes int, etcd, stoa subject) (both []*bench, done func(*error), err error) {
	done = func(err *error) { end(both, err) }
	if etcd.bin, err = process.Choose("etcd"); err != nil {
		return nil, done, err
	}
	etcd.name, stoa.name, stoa.bin = "etcd", "stoa", p.stoa
	for _, s := range []subject{etcd, stoa} {
		b, err := newBench(p, s, nodes)
		if err != nil {
			end(both, &err)
			return nil, done, err
		}
		both = append(both, b)
	}
	return both, done, nil
}

// round puts the load on for a while and measures the middle of it.
func (b *bench) round(op string, clients int) (sample, error) {
	name := fmt.Sprintf("%d %s %d", len(b.cluster.Servers), op, clients)
	return b.plan.profiled(b.cluster, name, func() (sample, error) {
		return b.plan.measure(b.cluster, func() (*running, error) { return b.load.start(op, clients), nil })
	})
}

// measure puts a load on a cluster for a while and measures the middle of it.
func (p *plan) measure(cluster *process.Cluster, start func() (*running, error)) (sample, error) {
	time.Sleep(200 * time.Millisecond) // what the last round left behind on the disk
	r, err := start()
	if err != nil {
		return sample{}, err
	}
	time.Sleep(p.warmup)
	s, err := p.window(cluster, r)
	if err := errors.Join(err, r.stop()); err != nil {
		return sample{}, err
	}
	return s, nil
}

// window measures what a load that is on does for a while.
func (p *plan) window(cluster *process.Cluster, r *running) (sample, error) {
	r.record()
	start := time.Now()
	own := ownCPU()
	before, err := cluster.CPU()
	if err != nil {
		return sample{}, err
	}
	all, idle, err := machineCPU()
	if err != nil {
		return sample{}, err
	}
	time.Sleep(p.length)
	allThen, idleThen, err := machineCPU()
	if err != nil {
		return sample{}, err
	}
	hist := r.recorded()
	took := time.Since(start)
	own = ownCPU() - own
	after, err := cluster.CPU()
	if err != nil {
		return sample{}, err
	}
	if hist.count == 0 {
		return sample{}, errors.New("not one operation was done")
	}
	return sample{
		rate: float64(hist.count) / took.Seconds(),
		cpu:  (after - before) / time.Duration(hist.count),
		p50:  hist.quantile(0.5),
		p99:  hist.quantile(0.99),
		load: own / time.Duration(hist.count),
		busy: 1 - (idleThen-idle)/(allThen-all),
	}, nil
}

// ownCPU is the CPU time of this process: what the load costs to generate.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (b *bench) resident() int64 {
	var sum int64
	for _, s := range b.cluster.Servers {
		n, err := s.Resident()
		if err != nil {
			return 0
		}
		sum += n
	}
	return sum / int64(len(b.cluster.Servers))
}

// median takes the median of each figure over the rounds.
func median(rounds []sample) sample {
	duration := func(of func(sample) time.Duration) time.Duration {
		return time.Duration(middle(figures(rounds, func(s sample) float64 { return float64(of(s)) })))
	}
	return sample{
		rate: middle(figures(rounds, byRate)),
		cpu:  duration(func(s sample) time.Duration { return s.cpu }),
		p50:  duration(func(s sample) time.Duration { return s.p50 }),
		p99:  duration(func(s sample) time.Duration { return s.p99 }),
		load: duration(func(s sample) time.Duration { return s.load }),
		busy: middle(figures(rounds, byBusy)),
	}
}
