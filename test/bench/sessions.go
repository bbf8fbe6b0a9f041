package main

import (
	"fmt"
	"maps"
	"slices"
)

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// unaryClients is how many clients the unary calls beside sessions have: as many as
// give etcd its best throughput.
const unaryClients = 1000

// The names of lines that are looked for.
const (
	stoaSessions     = "stoa, sessions"
	ownDirectory     = "stoa, own directory"
	zooKeeperClients = "ZooKeeper, 1000 clients"
)

// result is one line of measureSessions.
type result struct {
	nodes  int
	what   work
	server string
	sample // the median of the rounds
	rounds []sample
	beside []sample // the empty stream's, of the same cell
}

// measureSessions compares sessions with unary calls, with ZooKeeper's and with
// streams that do nothing.
func measureSessions(p *plan) (section, error) {
	all, err := sessionCells(p, slices.Max(p.nodes))
	if err != nil {
		return section{}, err
	}
	s := section{rows: sessionRows(all), verdicts: sessionGoals(p, all)}
	where := "with the leader, where stoa's client goes by itself,"
	if p.spread {
		where = "spread over the servers"
	}
	s.text = fmt.Sprintf("%d rounds of %v, %d keys, values of %d B. A session keeps as many requests in flight as its depth, and sends a new one for every "+
		"answer, those for the answers of one message in one message. stoa's sessions are %s and share at most %d connections; ZooKeeper's are "+
		"spread over its servers, with a connection each and as many requests pipelined; its reads are local and may be stale, stoa's are strict. "+
		"Keys are random; with its own directory (one of 100) a session's writes are all in one partition, otherwise every other one is a rendezvous. The empty stream is a bare gRPC server that answers each message with one of as many replies of the same size. "+
		"Unary: %d clients that wait for each answer, on %d connections.",
		p.rounds, p.length, p.keys, p.value, where, maxConns, unaryClients, maxConns)
	return s, nil
}

func sessionCells(p *plan, nodes int) (all []result, err error) {
	a, err := newArena(p, arenaOf{nodes: nodes, value: p.value, etcd: true, zk: true, empty: true})
	if err != nil {
		return nil, err
	}
	defer func() { a.close(err != nil) }()
	for _, op := range []string{"put", "get"} {
		unary := []contender{byUnary(a.etcd, "etcd", op, unaryClients), byUnary(a.stoa, "stoa", op, unaryClients)}
		if a.zk != nil {
			c := a.onZooKeeper(work{op: op, sessions: maxConns, depth: unaryClients / maxConns})
			c.name = zooKeeperClients
			unary = append(unary, c)
		}
		got, err := p.compete(fmt.Sprintf("%d node%s, %s, unary calls", nodes, plural(nodes), opText[op]), unary)
		if err != nil {
			return all, err
		}
		for i, c := range unary {
			all = append(all, result{nodes: nodes, what: work{op: op, sessions: unaryClients}, server: c.name, sample: median(got[i]), rounds: got[i]})
		}
		for _, sessions := range p.sessions {
			for _, depth := range p.depths {
				w := work{op: op, sessions: sessions, depth: depth}
				got, err := a.sessionCell(w)
				if err != nil {
					return all, err
				}
				all = append(all, got...)
			}
		}
	}
	return all, nil
}

func (a *arena) sessionCell(w work) ([]result, error) {
	own := w
	if a.p.spread {
		own.at = a.everywhere()
	}
	contenders := []contender{a.onEmpty(w), a.overSessions(own)}
	if w.op == "put" {
		// Of two writes to different partitions, one behind the other, one is a
		// rendezvous. A client with a directory of its own has no such pairs.
		own.pick = a.keys.ownKeys
		c := a.overSessions(own)
		c.name = ownDirectory
		contenders = append(contenders, c)
	}
	if a.zk != nil {
		contenders = append(contenders, a.onZooKeeper(w))
	}
	got, err := a.p.compete(fmt.Sprintf("%d node%s, %v", a.nodes, plural(a.nodes), w), contenders)
	if err != nil {
		return nil, err
	}
	var out []result
	for i, c := range contenders {
		out = append(out, result{nodes: a.nodes, what: w, server: c.name, sample: median(got[i]), rounds: got[i], beside: got[0]})
	}
	return out, nil
}

// everywhere is the addresses of all servers of stoa's.
func (a *arena) everywhere() []string {
	var all []string
	for _, s := range a.stoa.cluster.Servers {
		all = append(all, address(s))
	}
	return all
}

func sessionRows(all []result) [][]string {
	rows := [][]string{{"nodes", "work", "sessions", "depth", "server", "ops/s", "p50", "p99", "CPU/op", "load CPU/op", "etcd's ops", "ZooKeeper's ops", "of the empty stream"}}
	for _, r := range all {
		sessions, depth := fmt.Sprint(r.what.sessions), fmt.Sprint(r.what.depth)
		if r.what.depth == 0 {
			sessions, depth = "unary", "1"
		}
		row := []string{fmt.Sprint(r.nodes), opText[r.what.op], sessions, depth, r.server, fmt.Sprintf("%.0f", r.rate),
			round(r.p50).String(), round(r.p99).String(), round(r.cpu).String(), round(r.load).String(), "", "", ""}
		if base, ok := find(all, r, "etcd, 1000 unary"); ok && r.server != "empty stream" {
			row[10] = ratioText(r.rate / base.rate)
		}
		if r.server == stoaSessions || r.server == ownDirectory {
			if zk, ok := find(all, r, "ZooKeeper"); ok {
				row[11] = ratioText(r.rate / zk.rate)
			}
			row[12] = fmt.Sprintf("%.0f %%", 100*compare(r.rounds, r.beside, byRate).mid)
		}
		rows = append(rows, row)
	}
	return rows
}

// find is another server's line for the same work; unary calls are beside every depth.
func find(all []result, like result, server string) (result, bool) {
	for _, r := range all {
		if r.server == server && r.nodes == like.nodes && r.what.op == like.what.op &&
			(r.what.depth == 0 || r.what.depth == like.what.depth && r.what.sessions == like.what.sessions) {
			return r, true
		}
	}
	return result{}, false
}

// best is a server's line with the highest throughput.
func best(all []result, nodes int, op, server string) (b result, ok bool) {
	for _, r := range all {
		if r.nodes == nodes && r.what.op == op && r.server == server && r.rate > b.rate {
			b, ok = r, true
		}
	}
	return b, ok
}

// sessionGoals judges each server's best with the most servers.
func sessionGoals(p *plan, all []result) (out []verdict) {
	nodes := slices.Max(p.nodes)
	if nodes < 3 {
		return nil
	}
	for _, of := range []struct{ server, keys string }{{ownDirectory, "a directory for each session"}, {stoaSessions, "any keys"}} {
		own, ok := best(all, nodes, "put", of.server)
		if !ok {
			continue
		}
		name := fmt.Sprintf("sessions, %d nodes, puts of %s, each server at its best: beside ", nodes, of.keys)
		if etcd, ok := best(all, nodes, "put", "etcd, 1000 unary"); ok {
			out = append(out, atLeast(name+"etcd", compare(own.rounds, etcd.rounds, byRate), 10))
		}
		if zk, ok := best(all, nodes, "put", "ZooKeeper"); ok {
			out = append(out, atLeast(name+"ZooKeeper", compare(own.rounds, zk.rounds, byRate), 4))
		}
	}
	zk, ok := best(all, nodes, "put", zooKeeperClients)
	if unary, found := best(all, nodes, "put", "stoa, 1000 unary"); ok && found {
		out = append(out, atLeast(fmt.Sprintf("etcd API, %d nodes, put, %d clients: beside ZooKeeper with as many", nodes, unaryClients), compare(unary.rounds, zk.rounds, byRate), 1))
	}
	if own, ok := best(all, nodes, "get", stoaSessions); ok {
		share := compare(own.rounds, own.beside, byRate)
		out = append(out, verdict{
			goal:  fmt.Sprintf("sessions, %d nodes, strict gets: beside the empty stream in the same cell", nodes),
			asked: "≥ 400000/s or ≥ 0.70x", measured: fmt.Sprintf("%.0f/s, %v", own.rate, share),
			missed: own.rate < 400_000 && share.mid < 0.7,
		})
	}
	return out
}
