package main

import (
	"fmt"
	"math/rand/v2"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// oneCore gives a server one core's worth of goroutines.
var oneCore = []string{"GOMAXPROCS=1"}

// measurePartitions measures what a second partition costs where there is no second
// core for it, and what a transaction over two costs.
func measurePartitions(p *plan) (s section, err error) {
	s.rows = [][]string{{"nodes", "work", "server", "ops/s", "p50", "p99", "CPU/op", "ops ratio", "CPU ratio", "p50 ratio", "p99 ratio"}}
	for _, nodes := range p.nodes {
		if err := onOneCore(p, nodes, &s); err != nil {
			return s, err
		}
		if err := overTwo(p, nodes, &s); err != nil {
			return s, err
		}
	}
	s.text = fmt.Sprintf("Servers with GOMAXPROCS=1, with one partition and with two: %d clients, unary calls. Then one client that puts two keys in a transaction, "+
		"the keys being of one partition of two, or of both. %d rounds of %v.", unaryClients, p.rounds, p.length)
	return s, nil
}

// add adds the lines of contenders, and of each but the first its ratios to the first.
func (s *section) add(nodes int, work string, names []string, rounds [][]sample) {
	for i, name := range names {
		m := median(rounds[i])
		row := []string{fmt.Sprint(nodes), work, name, fmt.Sprintf("%.0f", m.rate), round(m.p50).String(), round(m.p99).String(), round(m.cpu).String(), "", "", "", ""}
		for k, of := range []func(sample) float64{byRate, byCPU, byP50, byP99} {
			if i > 0 {
				row[7+k] = compare(rounds[i], rounds[0], of).String()
			}
		}
		s.rows = append(s.rows, row)
	}
}

func onOneCore(p *plan, nodes int, s *section) (err error) {
	var benches []*bench
	defer func() { end(benches, &err) }()
	for _, parts := range []int{1, 2} {
		b, err := newBench(p, subject{name: fmt.Sprintf("stoa P=%d", parts), bin: p.stoa, parts: parts, env: oneCore}, nodes)
		if err != nil {
			return err
		}
		benches = append(benches, b)
	}
	for _, op := range []string{"put", "get"} {
		var all []contender
		var names []string
		for _, b := range benches {
			all = append(all, byUnary(b, b.subject.name, op, unaryClients))
			names = append(names, b.subject.name)
		}
		rounds, err := p.compete(fmt.Sprintf("%d nodes, one core, %s", nodes, op), all)
		if err != nil {
			return err
		}
		s.add(nodes, op+", one core", names, rounds)
		name := fmt.Sprintf("partitions, %d node%s, %s on one core: P = 2 over P = 1, ", nodes, plural(nodes), op)
		s.verdicts = append(s.verdicts,
			atMost(name+"CPU per operation", compare(rounds[1], rounds[0], byCPU), 1.1),
			atLeast(name+"throughput", compare(rounds[1], rounds[0], byRate), 1/1.1))
	}
	return nil
}

// overTwo compares transactions in one partition with transactions over two.
func overTwo(p *plan, nodes int, s *section) (err error) {
	a, err := newArena(p, arenaOf{nodes: nodes, parts: 2, value: p.value})
	if err != nil {
		return err
	}
	defer func() { a.close(err != nil) }()
	lists, err := a.partitions()
	if err != nil {
		return err
	}
	var all []contender
	names := []string{"one partition", "two partitions"}
	for i, pick := range []func(*rand.Rand) [2]int{
		func(r *rand.Rand) [2]int {
			l := lists[r.IntN(2)]
			return [2]int{l[r.IntN(len(l)/2)], l[len(l)/2+r.IntN(len(l)/2)]}
		},
		func(r *rand.Rand) [2]int {
			return [2]int{lists[0][r.IntN(len(lists[0]))], lists[1][r.IntN(len(lists[1]))]}
		},
	} {
		requests, err := a.keys.transactions(1000, pick)
		if err != nil {
			return err
		}
		all = append(all, contender{name: names[i], cluster: a.stoa.cluster, start: func() (*running, error) {
			l := *a.stoa.load
			l.addresses = []string{a.leader}
			l.requests = map[string][][]byte{"txn": requests}
			return l.start("txn", 1), nil
		}})
	}
	rounds, err := p.compete(fmt.Sprintf("%d nodes, transactions", nodes), all)
	if err != nil {
		return err
	}
	s.add(nodes, "transaction of two puts, 1 client", names, rounds)
	name := fmt.Sprintf("partitions, %d node%s, a transaction over two partitions beside one over one: ", nodes, plural(nodes))
	s.verdicts = append(s.verdicts,
		atMost(name+"p50", compare(rounds[1], rounds[0], byP50), 2), atMost(name+"p99", compare(rounds[1], rounds[0], byP99), 2))
	return nil
}

// transactions encodes so many transactions that put two keys.
func (k *keyspace) transactions(n int, pick func(*rand.Rand) [2]int) ([][]byte, error) {
	rnd := rand.New(rand.NewPCG(1, 7))
	var all [][]byte
	for range n {
		t := &pb.TxnRequest{}
		for _, i := range pick(rnd) {
			t.Success = append(t.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(k.keys[i]), Value: k.value}}})
		}
		b, err := proto.Marshal(t)
		if err != nil {
			return nil, fmt.Errorf("encoding the transactions: %w", err)
		}
		all = append(all, b)
	}
	return all, nil
}
