// Bench measures servers side by side: real etcd and stoa, in one run, on one
// machine, under one load.
//
//	go run ./test/bench                       1 and 3 servers; 1, 100 and 1,000 clients
//	go run ./test/bench -quick                short rounds, for a look
//	go run ./test/bench -servers etcd,stoa:1,stoa:2 -clients 1000 -ops put
//	go run ./test/bench -write docs/benchmarks.md
//
// The first of -servers is the baseline; "stoa:2" is stoa with two partitions. The
// rounds of a cell are interleaved (etcd, stoa, etcd, stoa, …), so that what drifts on
// the machine hits both. Each figure is the median of its rounds; the CPU time is that
// of all servers of a cluster together, from /proc, per operation done.
//
// The load generator runs beside the servers, as in most published figures, and so
// takes part of the machine. It is kept cheap, and the same for all: unary gRPC calls
// written by hand (wire.go), with requests encoded beforehand and answers that are
// looked at, not decoded. What it used itself is in the report.
package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/stoa-kv/stoa/test/process"
)

// plan is what a run measures.
type plan struct {
	subjects []subject
	nodes    []int
	clients  []int
	ops      []string
	value    int
	keys     int
	rounds   int
	length   time.Duration
	warmup   time.Duration
	write    string
}

// subject is one of the servers that are compared.
type subject struct {
	name  string
	bin   process.Binary
	parts int // 0: the server's default
}

func main() {
	p, err := parse(os.Args[1:])
	if err == nil {
		err = run(p)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*plan, error) {
	f := flag.NewFlagSet("bench", flag.ExitOnError)
	p := &plan{}
	var (
		quick   = f.Bool("quick", false, "one short round of each cell, and only 1 and 1,000 clients")
		servers = f.String("servers", "etcd,stoa", "what to compare, the baseline first: etcd, stoa, stoa:PARTITIONS or the path of a binary")
		nodes   = f.String("nodes", "1,3", "servers to a cluster")
		clients = f.String("clients", "", "clients that work at once (default 1,100,1000)")
		ops     = f.String("ops", "put,get,sget", "put, get (linearizable), sget (serializable)")
	)
	f.IntVar(&p.value, "value", 256, "bytes of a value")
	f.IntVar(&p.keys, "keys", 10_000, "number of keys")
	f.IntVar(&p.rounds, "rounds", 3, "rounds of each cell")
	f.DurationVar(&p.length, "length", 3*time.Second, "time that a round is measured")
	f.DurationVar(&p.warmup, "warmup", 500*time.Millisecond, "time that a round runs before")
	f.StringVar(&p.write, "write", "", "write the report, as Markdown, to this file")
	f.Parse(args)

	given := map[string]bool{}
	f.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if *quick {
		if !given["rounds"] {
			p.rounds = 1
		}
		if !given["length"] {
			p.length = time.Second
		}
		if *clients == "" {
			*clients = "1,1000"
		}
	}
	if *clients == "" {
		*clients = "1,100,1000"
	}
	var err error
	if p.nodes, err = numbers(*nodes); err != nil {
		return nil, err
	}
	if p.clients, err = numbers(*clients); err != nil {
		return nil, err
	}
	p.ops = strings.Split(*ops, ",")
	for _, op := range p.ops {
		if methods[op] == "" {
			return nil, fmt.Errorf("-ops: %q is none of put, get, sget", op)
		}
	}
	for _, s := range strings.Split(*servers, ",") {
		sub := subject{name: s}
		path, parts, ok := strings.Cut(s, ":")
		if ok {
			if sub.parts, err = strconv.Atoi(parts); err != nil {
				return nil, fmt.Errorf("-servers: the partitions of %q: %w", s, err)
			}
			sub.name = fmt.Sprintf("%s P=%d", path, sub.parts)
		}
		if sub.bin, err = process.Choose(path); err != nil {
			return nil, err
		}
		p.subjects = append(p.subjects, sub)
	}
	return p, nil
}

func numbers(list string) ([]int, error) {
	var out []int
	for _, f := range strings.Split(list, ",") {
		n, err := strconv.Atoi(f)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a list of numbers", list)
		}
		out = append(out, n)
	}
	return out, nil
}

func run(p *plan) error {
	rep := &report{plan: p, started: time.Now()}
	for _, n := range p.nodes {
		if err := runNodes(p, n, rep); err != nil {
			return err
		}
	}
	rep.table(os.Stdout)
	if p.write == "" {
		return nil
	}
	out, err := os.Create(p.write)
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	defer out.Close()
	rep.markdown(out)
	return out.Close()
}
