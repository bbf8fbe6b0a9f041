package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/stoa-kv/stoa/test/process"
)

// kubeServers is how many servers a cluster has; each API server talks to one of them, as where
// etcd is stacked upon the control plane's nodes.
const kubeServers = 3

// kubeArgs are what clusters of Kubernetes' size set.
var kubeArgs = []string{"--quota-backend-bytes=8589934592"}

// renewalsAtOnce is how many leases each API server updates at once when updates go as fast as
// answers come.
const renewalsAtOnce = 100

// limitNodes is the time that the p99 of all writes must keep.
const limitNodes = 100 * time.Millisecond

// settleTime is between the creation of objects and a round.
const settleTime = 2 * time.Second

// kubeSample is one round.
type kubeSample struct {
	nodes    int
	times    *kubeTimes
	took     time.Duration
	cpu      float64 // of all servers, in cores
	load     float64 // of the load generator, in cores
	resident float64 // bytes of all servers
	mapped   float64 // of these, bytes of files: the binary, and what is mapped of the data
}

func (s kubeSample) writeRate() float64 { return float64(s.times.writes().count) / s.took.Seconds() }
func (s kubeSample) writesP99() float64 { return float64(s.times.writes().quantile(0.99)) }

// kubeBench is one subject's cluster under Kubernetes' load.
type kubeBench struct {
	plan    *plan
	name    string
	cluster *process.Cluster
	load    *kubeLoad

	base     []kubeSample
	renewals []kubeSample
	levels   []kubeSample // of the search for the most nodes, in its order
	failed   []kubeSample // rounds of that search
	bounded  int          // of these, by the load generator
	most     []float64
}

// measureKube measures what kube-apiserver's storage layer sends.
func measureKube(p *plan) (s section, err error) {
	var all []*kubeBench
	defer func() {
		for _, b := range all {
			b.close(err == nil)
		}
	}()
	for _, of := range p.subjects {
		b, err := newKubeBench(p, of)
		if err != nil {
			return s, fmt.Errorf("%s: %w", of.name, err)
		}
		all = append(all, b)
	}
	for _, part := range []func(*kubeBench) error{(*kubeBench).atBase, (*kubeBench).saturate} {
		for range p.rounds {
			for _, b := range all {
				if err := part(b); err != nil {
					return s, fmt.Errorf("%s: %w", b.name, err)
				}
			}
		}
	}
	for range p.searches {
		for _, b := range all {
			if err := b.searchMost(); err != nil {
				return s, fmt.Errorf("%s: %w", b.name, err)
			}
		}
	}
	return kubeSection(p, all), nil
}

func newKubeBench(p *plan, of subject) (*kubeBench, error) {
	dir, err := process.TempDir("bench")
	if err != nil {
		return nil, err
	}
	args := slices.Concat(of.args, kubeArgs)
	if p.profiles != "" && of.bin.Stoa {
		args = append(args, pprofFlag)
	}
	c, err := process.Start(context.Background(), process.Spec{Binary: of.bin, Nodes: kubeServers, Partitions: of.parts, Args: args, Env: of.env, Dir: dir})
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	b := &kubeBench{plan: p, name: of.name, cluster: c}
	var addresses []string
	for _, s := range c.Servers {
		addresses = append(addresses, address(s))
	}
	if b.load, err = openKubeLoad(addresses); err == nil {
		err = b.load.grow(p.kubeNodes)
	}
	if err != nil {
		b.close(false)
		return nil, err
	}
	return b, nil
}

func (b *kubeBench) close(remove bool) {
	if b.load != nil {
		b.load.close()
	}
	b.cluster.Close()
	if remove {
		os.RemoveAll(b.cluster.Spec.Dir)
	}
}

// atBase is a round at the size at which servers are compared.
func (b *kubeBench) atBase() error {
	s, err := b.at(b.plan.kubeNodes, fmt.Sprintf("kube %d %d", b.plan.kubeNodes, len(b.base)))
	b.base = append(b.base, s)
	return err
}

// at is a round with the load of so many nodes.
func (b *kubeBench) at(nodes int, profile string) (kubeSample, error) {
	if err := b.load.grow(nodes); err != nil {
		return kubeSample{}, fmt.Errorf("creating the objects of %d nodes: %w", nodes, err)
	}
	time.Sleep(settleTime) // what was created is flushed, and the collectors have seen it
	s, err := b.window(profile, b.load.start(func(a *kubeAPI) []sending { return a.paces(nodes) }))
	s.nodes = nodes
	if err == nil {
		fmt.Fprintf(os.Stderr, "  %-6s %d nodes: %v\n", b.name, nodes, s)
	}
	return s, err
}

// saturate is a round of updates of leases as fast as answers come.
func (b *kubeBench) saturate() error {
	s, err := b.window(fmt.Sprintf("kube renewals %d", len(b.renewals)), b.load.renewals(renewalsAtOnce))
	if err == nil {
		fmt.Fprintf(os.Stderr, "  %-6s leases, as fast as answers come: %v\n", b.name, s)
	}
	b.renewals = append(b.renewals, s)
	return err
}

// window measures the middle of a load that has begun, and ends it.
func (b *kubeBench) window(profile string, r *kubeRun) (s kubeSample, err error) {
	profile = b.name + " " + profile
	kept := b.plan.keep(b.cluster, profile, max(int(b.plan.length.Seconds()), 1))
	defer func() { err = errors.Join(err, r.stop(), <-kept, b.lookAll(profile)) }()
	time.Sleep(b.plan.warmup)
	r.record()
	start, own := time.Now(), ownCPU()
	before, err := b.cluster.CPU()
	if err != nil {
		return s, err
	}
	time.Sleep(b.plan.length)
	s.times, s.took = r.recorded(), time.Since(start)
	s.load = (ownCPU() - own).Seconds() / s.took.Seconds()
	after, err := b.cluster.CPU()
	if err != nil {
		return s, err
	}
	s.cpu = (after - before).Seconds() / s.took.Seconds()
	for _, server := range b.cluster.Servers {
		all, mapped, err := server.Memory()
		if err != nil {
			return s, err
		}
		s.resident += float64(all)
		s.mapped += float64(mapped)
	}
	if s.times.writes().count == 0 {
		return s, errors.New("no write was answered")
	}
	return s, nil
}

// lookAll keeps profiles of the heaps of stoa's servers.
func (b *kubeBench) lookAll(profile string) error {
	if !b.cluster.Spec.Binary.Stoa {
		return nil
	}
	var failed error
	for i, s := range b.cluster.Servers {
		failed = errors.Join(failed, b.plan.look(s, fmt.Sprintf("%s-%d", profile, i+1), "heap"))
	}
	return failed
}

func (s kubeSample) String() string {
	w, lag := s.times.writes(), &s.times[eventLags]
	return fmt.Sprintf("%.0f writes/s, p50 %v, p99 %v; events p50 %v, p99 %v; %.2f cores (load generator %.2f), %.0f MiB (%.0f of files)",
		s.writeRate(), round(w.quantile(0.5)), round(w.quantile(0.99)), round(lag.quantile(0.5)), round(lag.quantile(0.99)), s.cpu, s.load, s.resident/(1<<20), s.mapped/(1<<20))
}

// verdictOf is what a round says of a number of nodes.
type verdictOf int

const (
	fails verdictOf = iota
	holds
	generatorFails // the load generator can't send so much in time: of the servers the round says nothing
)

// judge looks at a round at so many nodes. What isn't sent, because the object's last write isn't
// answered, doesn't hold.
func (s kubeSample) judge() verdictOf {
	switch {
	case s.times[sendDelays].quantile(0.99) > limitNodes/4:
		return generatorFails
	case s.writesP99() <= float64(limitNodes) && s.writeRate() >= 0.95*writesPerSecond(s.nodes):
		return holds
	}
	return fails
}

// searchMost looks for the most nodes whose writes the cluster answers in time.
func (b *kubeBench) searchMost() error {
	most, err := mostThatHold(b.plan.kubeNodes, func(nodes int) (bool, error) { return b.hold(nodes) })
	b.most = append(b.most, float64(most))
	return err
}

// triesOfLevel is how many rounds decide whether a number of nodes holds: the best of three, because
// what else the machine does lets one fail. One that fails by far is not repeated.
const (
	triesOfLevel = 3
	byFar        = 3 * limitNodes
)

// hold reports whether the cluster answers the writes of so many nodes in time.
func (b *kubeBench) hold(nodes int) (bool, error) {
	for range triesOfLevel {
		s, err := b.at(nodes, fmt.Sprintf("kube %d", nodes))
		if err != nil {
			return false, err
		}
		verdict := s.judge()
		if verdict == holds {
			b.levels = append(b.levels, s)
			return true, nil
		}
		b.failed = append(b.failed, s)
		if verdict == generatorFails {
			b.bounded++
		} else if s.writesP99() > float64(byFar) {
			break
		}
	}
	b.levels = append(b.levels, b.failed[len(b.failed)-1])
	return false, nil
}

// mostThatHold is the largest number that holds: found by doubling or halving, then by bisection
// to within a tenth.
func mostThatHold(start int, holds func(int) (bool, error)) (int, error) {
	low, high := 0, 0
	for n := start; low == 0 || high == 0; {
		ok, err := holds(n)
		if err != nil {
			return low, err
		}
		if ok {
			low, n = n, 2*n
		} else {
			high, n = n, n/2
		}
		if n == 0 {
			return 0, nil
		}
	}
	for range 3 {
		n := int(math.Sqrt(float64(low) * float64(high)))
		ok, err := holds(n)
		if err != nil {
			return low, err
		}
		if ok {
			low = n
		} else {
			high = n
		}
	}
	return low, nil
}
