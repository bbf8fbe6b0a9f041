package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/stoa-kv/stoa/test/plot"
)

// writers are the clients beside the reader. They share few connections, and so few
// goroutines of this program, where the reader would have to queue with them.
var writers = work{op: "put", sessions: 100, depth: 64, conns: 4}

// reader reads at a pace, whether or not earlier reads have been answered, and not so
// much that it fills the machine by itself.
var reader = work{op: "get", sessions: 1, depth: 10_000, pace: 200}

// shares are how much of what they can do at most the writers do. By themselves, small
// requests cost much more than in the batches of those that do their most.
var shares = []float64{0, 0.001, 0.003, 0.01, 0.03, 0.1}

// unchanged is how much a latency may grow and count as the same.
const unchanged = 1.2

// lonely is one reader with the writers that may be beside it.
type lonely struct {
	name   string
	reader contender
	beside func(pace float64) contender // writers on what it reads; 0: as fast as answers come
	apart  func(pace float64) contender // on another cluster on the same machine; nil: not measured
}

// measureIsolation measures how long one client's reads take while others write.
func measureIsolation(p *plan) (s section, err error) {
	nodes := slices.Max(p.nodes)
	charts := []plot.Panel{
		{Title: "p50", X: "puts/s of the writers", Y: "p50 of the reader, ms"},
		{Title: "p99", X: "puts/s of the writers", Y: "p99 of the reader, ms"},
	}
	s.rows = [][]string{{"reader", "puts/s beside", "of their most", "p50", "p99", "machine's CPU in use", "p50 to alone", "p99 to alone",
		"p50 to alone, writers on another cluster", "p50 to that with writers on another cluster", "goal"}}
	for _, on := range []func(*plan, int, func(lonely) error) error{onStoa, onOthers} {
		err := on(p, nodes, func(l lonely) error {
			got, err := p.isolate(l)
			if err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			for _, at := range got {
				row := at.row(l)
				s.rows = append(s.rows, row)
				fmt.Fprintln(os.Stderr, strings.Join(row, "  "))
				m := median(at.beside)
				for i, d := range []time.Duration{m.p50, m.p99} {
					addPoint(&charts[i], l.name, plot.Point{X: middle(at.puts), Y: float64(d) / float64(time.Millisecond)})
				}
			}
			s.verdicts = append(s.verdicts, isolationGoals(l, got)...)
			return nil
		})
		if err != nil {
			return s, err
		}
	}
	s.charts = map[string]plot.Chart{"bench-isolation.svg": {Title: fmt.Sprintf("One reader beside %d writers, %d nodes, %d B", writers.sessions, nodes, p.value), Panels: charts}}
	s.text = isolationText(p, nodes)
	return s, nil
}

// writing is the writers on an arena.
func writing(a *arena, on func(work) contender) func(float64) contender {
	return func(pace float64) contender {
		w := writers
		w.pace, w.pick = pace, a.keys.ownKeys
		return on(w)
	}
}

// onStoa measures readers of a cluster with writers on it, and on another.
func onStoa(p *plan, nodes int, measure func(lonely) error) (err error) {
	var both [2]*arena
	for i := range both {
		a, err := newArena(p, arenaOf{nodes: nodes, value: p.value})
		if err != nil {
			return err
		}
		defer func() { a.close(err != nil) }()
		both[i] = a
	}
	a := both[0]
	for _, of := range []struct{ op, name string }{{"get", "stoa, strict"}, {"causal", "stoa, causal"}} {
		r := reader
		r.op = of.op
		err := measure(lonely{name: of.name, reader: a.overSessions(r), beside: writing(a, a.overSessions), apart: writing(both[1], both[1].overSessions)})
		if err != nil {
			return err
		}
	}
	return nil
}

// onOthers measures the same on etcd, by calls one by one, and on ZooKeeper.
func onOthers(p *plan, nodes int, measure func(lonely) error) (err error) {
	a, err := newArena(p, arenaOf{nodes: nodes, value: p.value, etcd: true, zk: true})
	if err != nil {
		return err
	}
	defer func() { a.close(err != nil) }()
	leader, err := leaderOf(a.etcd.cluster)
	if err != nil {
		return err
	}
	unary := func(pace float64) contender {
		if pace == 0 {
			return byUnary(a.etcd, "etcd", "put", unaryClients)
		}
		return pacedUnary(a.etcd, "put", writers.conns, pace)
	}
	all := []lonely{
		{name: "etcd, linearizable", reader: pacedUnary(a.etcd, "get", 1, reader.pace, leader), beside: unary},
		{name: "etcd, serializable", reader: pacedUnary(a.etcd, "sget", 1, reader.pace, leader), beside: unary},
	}
	if a.zk != nil {
		all = append(all, lonely{name: "ZooKeeper", reader: a.onZooKeeper(reader), beside: writing(a, a.onZooKeeper)})
	}
	for _, l := range all {
		if err := measure(l); err != nil {
			return err
		}
	}
	return nil
}

// pacedUnary does it by calls at a pace, over few connections to the given servers, or all.
func pacedUnary(b *bench, op string, conns int, pace float64, at ...string) contender {
	return contender{name: b.subject.name, cluster: b.cluster, start: func() (*running, error) {
		l := *b.load
		l.conns, l.pace = conns, pace
		if len(at) > 0 {
			l.addresses = at
		}
		return l.start(op, conns), nil
	}}
}

// isolate measures one reader at all shares, in each round at all of them.
func (p *plan) isolate(l lonely) ([]isolated, error) {
	limit, err := p.measure(l.reader.cluster, l.beside(0).start)
	if err != nil {
		return nil, err
	}
	out := make([]isolated, len(shares))
	for range p.rounds {
		var alone sample
		for i, share := range shares {
			at := &out[i]
			at.share = share
			if share == 0 {
				if alone, err = p.measure(l.reader.cluster, l.reader.start); err != nil {
					return nil, err
				}
				at.alone, at.beside, at.apart = append(at.alone, alone), append(at.beside, alone), append(at.apart, alone)
				at.puts = append(at.puts, 0)
				continue
			}
			got, puts, err := p.besides(l.reader, l.beside(limit.rate*share))
			if err != nil {
				return nil, err
			}
			at.alone, at.beside, at.puts = append(at.alone, alone), append(at.beside, got), append(at.puts, puts)
			if l.apart == nil {
				continue
			}
			if got, _, err = p.besides(l.reader, l.apart(limit.rate*share)); err != nil {
				return nil, err
			}
			at.apart = append(at.apart, got)
		}
	}
	return out, nil
}

// besides measures a reader while writers are at work, and how much they do per second.
func (p *plan) besides(reader, writers contender) (got sample, puts float64, err error) {
	w, err := writers.start()
	if err != nil {
		return got, 0, err
	}
	began := time.Now()
	w.record()
	got, err = p.measure(reader.cluster, reader.start)
	puts = float64(w.recorded().count) / time.Since(began).Seconds()
	if serr := w.stop(); err == nil {
		err = serr
	}
	return got, puts, err
}
