package main

import (
	"fmt"
	"slices"
	"time"
)

// Of the clients that change partitions, as in AGORA's figure 9.
const (
	switchSessions = 16
	switchDepth    = 256
	switchValue    = 8
)

// runLengths are the requests between two changes of partition; 0: none.
var runLengths = []int{1, 10, 100, 0}

// measureSwitches measures what it costs to keep the order of a session over
// partitions.
func measureSwitches(p *plan) (s section, err error) {
	nodes := slices.Max(p.nodes)
	a, err := newArena(p, arenaOf{nodes: nodes, parts: p.parts, value: switchValue})
	if err != nil {
		return s, err
	}
	defer func() { a.close(err != nil) }()
	lists, err := a.partitions()
	if err != nil {
		return s, err
	}
	s.rows = [][]string{{"work", "1 per change", "10 per change", "100 per change", "no change", "CPU/op, 1", "CPU/op, 10", "CPU/op, 100", "CPU/op, none"}}
	for _, op := range []string{"put", "get", "causal", "fast"} {
		w := work{op: op, sessions: switchSessions, depth: switchDepth}
		if p.spread {
			w.at = a.everywhere()
		}
		var contenders []contender
		for _, run := range runLengths {
			w := w
			w.pick = func(session int) picker { return inRuns(lists, run, session) }
			c := a.overSessions(w)
			c.name = fmt.Sprintf("%d per change", run)
			contenders = append(contenders, c)
		}
		got, err := p.race(fmt.Sprintf("%d partitions, %v", p.parts, w), contenders)
		if err != nil {
			return s, err
		}
		row := []string{opText[op]}
		for _, g := range got {
			row = append(row, fmt.Sprintf("%.0f/s", g.rate))
		}
		for _, g := range got {
			row = append(row, round(g.cpu).String())
		}
		s.rows = append(s.rows, row)
	}
	where := "with the leader"
	if p.spread {
		where = "spread over the servers"
	}
	s.text = fmt.Sprintf("Figure 9 of AGORA: %d sessions of depth %d, %s, on a cluster of %d with %d partitions, values of %d B; each session makes the given number of requests "+
		"for keys of one partition before it changes to the next. %d rounds of %v. AGORA, on three servers of 8 cores with 4 to 8 partitions and 500 clients: "+
		"92,000–106,000/s with a change at each request, with 10 requests per change 146,000–206,000 reads/s and 111,000–151,000 writes/s.",
		switchSessions, switchDepth, where, nodes, p.parts, switchValue, p.rounds, p.length)
	return s, nil
}

// partitions asks stoa where the keys live.
func (a *arena) partitions() ([][]int, error) {
	pipe, err := openSessions(sessionOpening{address: a.leader, sessions: 1, ttl: time.Minute, places: true})
	if err != nil {
		return nil, err
	}
	lists, err := a.keys.byPartition(pipe.list[0].opened.PartitionMap)
	if err != nil {
		pipe.link.close()
		return nil, err
	}
	return lists, pipe.close()
}
