package main

import (
	"context"
	"fmt"
	"os"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/test/process"
)

// Of the extensions that clients don't use.
const (
	registered     = 100
	registeredCost = 1.004
)

// measureExtensions measures what clients pay for extensions that they don't use (EZK,
// section 6.2): end to end, and, because that can't be seen there, in the code that is
// passed through.
func measureExtensions(p *plan) (s section, err error) {
	var benches []*bench
	defer func() { end(benches, &err) }()
	for _, name := range []string{"no extension", "100 extensions"} {
		b, err := newBench(p, subject{name: name, bin: p.stoa}, 1)
		if err != nil {
			return s, err
		}
		benches = append(benches, b)
	}
	if err := registerMany(benches[1]); err != nil {
		return s, err
	}
	costs, err := routingCosts(p)
	if err != nil {
		return s, err
	}
	s.rows = [][]string{{"nodes", "work", "server", "ops/s", "p50", "p99", "CPU/op", "ops ratio", "CPU ratio", "p50 ratio", "p99 ratio"}}
	many := *p
	many.rounds = 2 * p.rounds
	for _, op := range []string{"put", "get"} {
		var all []contender
		var names []string
		for _, b := range benches {
			all = append(all, byUnary(b, b.subject.name, op, unaryClients))
			names = append(names, b.subject.name)
		}
		rounds, err := many.compete(op+" beside extensions", all)
		if err != nil {
			return s, err
		}
		s.add(1, op, names, rounds)
		name := fmt.Sprintf("clients that use no extension, %d registered, %s: CPU per operation beside none, ", registered, op)
		cpu := float64(median(rounds[0]).cpu)
		var code []float64
		for _, c := range costs[op] {
			code = append(code, cpu+float64(c))
		}
		r := ratioOf(code, repeat(cpu, len(code)))
		s.verdicts = append(s.verdicts, verdict{goal: name + "from the code passed through", asked: "≤ 1.004x",
			measured: fmt.Sprintf("%.4fx: %v of %v", r.mid, costs[op], round(time.Duration(cpu))), missed: r.mid > registeredCost})
		s.notes = append(s.notes, fmt.Sprintf("%s: routing and applying beside %d extensions costs %v more than beside none.", op, registered, costs[op]))
		// Noise is larger than what is looked for: this would show only what is gross.
		whole := compare(rounds[1], rounds[0], byCPU)
		s.verdicts = append(s.verdicts, verdict{goal: name + "end to end", asked: "≤ 1.004x within the spread", measured: whole.String(), missed: whole.min > registeredCost})
	}
	s.text = fmt.Sprintf("One server with none and one with %d extensions for other keys, each for reads, puts and two kinds of events; %d clients, unary calls, %d rounds of %v. The code passed through: "+
		"`BenchmarkPlan` and `BenchmarkPuts` of internal/apply, with %d extensions less without.", registered, unaryClients, many.rounds, p.length, registered)
	return s, nil
}

func repeat(v float64, n int) []float64 {
	all := ones(n)
	for i := range all {
		all[i] = v
	}
	return all
}

func registerMany(b *bench) error {
	return once(b.cluster.Servers[0], func(ctx context.Context, a *admin) error {
		for i := range registered {
			_, err := a.kv.Put(ctx, &pb.PutRequest{Key: fmt.Appendf(nil, "/em/e%d", i), Value: fmt.Appendf(nil, `return {
				scope = { "/e/%[1]d/" },
				operations = { { op = "read", prefix = "/e/%[1]d/" }, { op = "put", prefix = "/e/%[1]d/" } },
				events = { { event = "created", prefix = "/e/%[1]d/" }, { event = "deleted", prefix = "/e/%[1]d/" } },
				read = function() end, put = function() end, event = function() end,
			}`, i)})
			if err != nil {
				return fmt.Errorf("registering extension %d: %w", i, err)
			}
		}
		return nil
	})
}

// routingCosts is what the benchmarks of apply take longer beside 100 extensions.
func routingCosts(p *plan) (map[string]durations, error) {
	dir, err := process.TempDir("bench-extensions")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	g, err := buildBench("./internal/apply", dir)
	if err != nil {
		return nil, err
	}
	costs := map[string]durations{}
	for range p.rounds {
		got, err := g.run(2, "(Plan|Puts)", "-test.benchtime="+(p.length).String())
		if err != nil {
			return nil, err
		}
		plan := func(op string) float64 { return got["Plan/"+op+"/100"].ns - got["Plan/"+op+"/none"].ns }
		put := plan("put") + got["Puts/beside-100-extensions"].ns - got["Puts/answered"].ns
		costs["put"] = append(costs["put"], time.Duration(put))
		costs["get"] = append(costs["get"], time.Duration(plan("get")))
	}
	return costs, nil
}
