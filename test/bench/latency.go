package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/stoa-kv/stoa/test/plot"
)

// steps are how the load grows: requests under way, by sessions and their depth.
var steps = []work{
	{sessions: 1, depth: 1}, {sessions: 1, depth: 16}, {sessions: 4, depth: 16},
	{sessions: 16, depth: 16}, {sessions: 16, depth: 64}, {sessions: 16, depth: 256},
}

// most is what unary calls have under way at most.
const most = 1024

// measureLatency puts a growing load on and plots what comes of it.
func measureLatency(p *plan) (s section, err error) {
	nodes := slices.Max(p.nodes)
	a, err := newArena(p, arenaOf{nodes: nodes, value: p.value, etcd: true, zk: true})
	if err != nil {
		return s, err
	}
	defer func() { a.close(err != nil) }()
	steps := steps
	if p.quick {
		steps = []work{steps[0], steps[1], steps[3], steps[5]}
	}
	chart := plot.Chart{Title: fmt.Sprintf("Latency against throughput, %d nodes, %d B", nodes, p.value)}
	s.rows = [][]string{{"work", "in flight", "server", "ops/s", "p50", "p99", "CPU/op"}}
	for _, op := range []string{"put", "get"} {
		panel := plot.Panel{Title: opText[op], X: "operations/s", Y: "median latency, ms"}
		for _, step := range steps {
			w := step
			w.op, w.pick = op, a.keys.ownKeys
			rows, err := a.latencyStep(w, &panel)
			if err != nil {
				return s, err
			}
			s.rows = append(s.rows, rows...)
		}
		chart.Panels = append(chart.Panels, panel)
	}
	s.charts = map[string]plot.Chart{"bench-latency.svg": chart}
	s.text = fmt.Sprintf("Figure 8 of AGORA: the load grows step by step, from 1 request in flight to %d, on a cluster of %d, values of %d B. stoa and ZooKeeper: "+
		"1 to 16 sessions of depth 1 to 256, each with a directory of its own; unary calls: as many clients as requests, at most %d. %d rounds of %v.",
		steps[len(steps)-1].sessions*steps[len(steps)-1].depth, nodes, p.value, most, p.rounds, p.length)
	return s, nil
}

func (a *arena) latencyStep(w work, panel *plot.Panel) ([][]string, error) {
	under := w.sessions * w.depth
	contenders := []contender{a.overSessions(w)}
	if a.zk != nil {
		contenders = append(contenders, a.onZooKeeper(w))
	}
	names := []string{stoaSessions, "ZooKeeper"}[:len(contenders)]
	if under <= most {
		contenders = append(contenders, byUnary(a.etcd, "etcd", w.op, under), byUnary(a.stoa, "stoa", w.op, under))
		names = append(names, "etcd", "stoa, unary")
	}
	got, err := a.p.race(w.String(), contenders)
	if err != nil {
		return nil, err
	}
	var rows [][]string
	for i, g := range got {
		rows = append(rows, []string{opText[w.op], fmt.Sprint(under), names[i], fmt.Sprintf("%.0f", g.rate),
			round(g.p50).String(), round(g.p99).String(), round(g.cpu).String()})
		addPoint(panel, names[i], plot.Point{X: g.rate, Y: float64(g.p50) / float64(time.Millisecond)})
	}
	return rows, nil
}

func addPoint(p *plot.Panel, series string, point plot.Point) {
	i := slices.IndexFunc(p.Series, func(s plot.Series) bool { return s.Name == series })
	if i < 0 {
		i = len(p.Series)
		p.Series = append(p.Series, plot.Series{Name: series})
	}
	p.Series[i].Points = append(p.Series[i].Points, point)
}
