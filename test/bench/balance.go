package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stoa-kv/stoa/test/plot"
)

// Of the load that jumps, as in AGORA's figure 10. The sessions are deep, so that the
// partitions' loops have much to do beside what the connections cost.
const (
	jumpNodes    = 1 // of one server, since the others' loops do the same
	jumpSessions = 100
	jumpDepth    = 64
	jumpValue    = 8
	beforeJump   = 10 * time.Second
	behindJump   = 30 * time.Second
	lookEach     = 250 * time.Millisecond
	// loadWindow is the time over which a loop's load is taken.
	loadWindow = time.Second
	// evenLoads: the busiest loop has at most so much more to do than the mean.
	evenLoads = 1.1
	// regained is the part of the throughput before the jump.
	regained = 0.9
	// paperJump is how long it took in the paper, on servers of 8 cores, with 4 partitions.
	paperJump = 3700 * time.Millisecond
)

// moment is what a server had done at a time.
type moment struct {
	at     time.Duration // since the load began
	worked []float64     // by partition: seconds
	puts   float64
	moved  bool // slots have moved, and none is on its way
}

// jumped is one run of a load that jumps.
type jumped struct {
	before, rightBehind, end float64         // puts per second
	moved, even, back        time.Duration   // from the jump on; 0: not at all
	uneven                   float64         // the busiest loop's load over the mean, at the end
	p99                      []time.Duration // before, behind the jump, at the end
	decisions, slots         float64
	loads                    []plot.Series // of the loops, over the time since the jump
}

// measureBalance makes all sessions go on with keys of one partition.
func measureBalance(p *plan) (s section, err error) {
	s.rows = [][]string{{"balancer", "puts/s before", "just behind the jump", "at the end", fmt.Sprintf("%.0f %% after", regained*100), "slots moved after", "decisions", "slots", "loops even after", "busiest loop over mean at the end", "p99 before", "behind", "at the end"}}
	chart := plot.Chart{Title: fmt.Sprintf("All load jumps onto one of %d partitions", p.parts)}
	for _, how := range []string{"off", "on"} {
		var all []jumped
		for range p.rounds {
			j, err := p.jump(how)
			if err != nil {
				return s, fmt.Errorf("balancer %s: %w", how, err)
			}
			s.rows = append(s.rows, j.row(how))
			fmt.Fprintln(os.Stderr, j.row(how))
			all = append(all, j)
		}
		chart.Panels = append(chart.Panels, plot.Panel{Title: "--balance=" + how, X: "s since the jump", Y: "% of its time that a loop works", Series: all[0].loads})
		if how == "on" {
			s.verdicts = append(s.verdicts, jumpVerdict(all))
		}
	}
	s.charts = map[string]plot.Chart{"bench-balance.svg": chart}
	s.text = fmt.Sprintf("Figure 10 of AGORA: %d sessions of depth %d on one server with %d partitions, puts of %d B, each session within one of %d directories. After %v all sessions go on with directories of partition 0. "+
		"A loop's load is the part of the last %v that it worked. The loops are even when the busiest has at most %.0f %% more to do than the mean. "+
		"AGORA, on servers of 8 cores with a core for each partition, has its throughput back after %v, with 4 partitions. Servers and clients share %d cores here, so a balanced load is not much faster than one on one partition: what is asked is how soon the loops are even.",
		jumpSessions, jumpDepth, p.parts, jumpValue, directories, beforeJump, loadWindow, (evenLoads-1)*100, paperJump, runtime.NumCPU())
	return s, nil
}

func (p *plan) jump(how string) (j jumped, err error) {
	a, err := newArena(p, arenaOf{nodes: jumpNodes, parts: p.parts, value: jumpValue, args: []string{"--balance=" + how}})
	if err != nil {
		return j, err
	}
	defer func() { a.close(err != nil) }()
	lists, err := a.partitions()
	if err != nil {
		return j, err
	}
	var onto atomic.Bool
	r, err := a.overSessions(work{op: "put", sessions: jumpSessions, depth: jumpDepth, pick: jumping(a.keys, lists[0], &onto)}).start()
	if err != nil {
		return j, err
	}
	began := time.Now()
	var moments []moment
	watch := func(d time.Duration) error {
		r.record()
		for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(lookEach) {
			m, err := a.moment(p.parts)
			if err != nil {
				return err
			}
			m.at = time.Since(began)
			moments = append(moments, m)
		}
		j.p99 = append(j.p99, r.recordedAnew().quantile(0.99))
		return nil
	}
	err = watch(beforeJump)
	jump := time.Since(began)
	onto.Store(true)
	err = errors.Join(err, watch(behindJump/2), watch(behindJump/2), r.stop())
	if err != nil {
		return j, err
	}
	j.judge(moments, jump)
	all, err := metricsOf("http://" + a.leader)
	j.decisions, j.slots = all["stoa_balancer_decisions_total"], all["stoa_balancer_slots_moved_total"]
	return j, err
}

// jumping picks keys of one directory for each session, and from the jump on of one of those of
// which keys are given.
func jumping(k *keyspace, onto []int, jumped *atomic.Bool) func(session int) picker {
	var hot []int
	for _, i := range onto {
		if d := i % directories; !slices.Contains(hot, d) {
			hot = append(hot, d)
		}
	}
	return func(session int) picker {
		before, behind := k.ownKeys(session), k.ownKeys(hot[session%len(hot)])
		return func() int {
			if jumped.Load() {
				return behind()
			}
			return before()
		}
	}
}

// moment asks the server what it has done.
func (a *arena) moment(parts int) (m moment, err error) {
	all, err := metricsOf("http://" + a.leader)
	if err != nil {
		return m, err
	}
	m.puts = all["etcd_mvcc_put_total"]
	m.moved = all["stoa_balancer_decisions_total"] > 0 && all["stoa_keys_moving"] == 0
	for q := range parts {
		m.worked = append(m.worked, all[fmt.Sprintf(`stoa_partition_loop_seconds_total{partition="%d"}`, q)])
	}
	return m, nil
}

// judge finds out of what was seen how soon a load is even that jumped at a time.
func (j *jumped) judge(moments []moment, jump time.Duration) {
	j.loads = make([]plot.Series, len(moments[0].worked))
	for q := range j.loads {
		j.loads[q].Name = fmt.Sprintf("partition %d", q)
	}
	var rates []float64 // behind the jump
	first := 0          // of the window
	for i, m := range moments {
		for m.at-moments[first].at > loadWindow {
			first++
		}
		took := (m.at - moments[first].at).Seconds()
		if took < loadWindow.Seconds()/2 {
			continue
		}
		busiest, sum := 0.0, 0.0
		for q, w := range m.worked {
			load := (w - moments[first].worked[q]) / took
			busiest, sum = max(busiest, load), sum+load
			j.loads[q].Points = append(j.loads[q].Points, plot.Point{X: (m.at - jump).Seconds(), Y: 100 * load})
		}
		rate := (m.puts - moments[first].puts) / took
		since := m.at - jump
		switch {
		case since <= 0:
			j.before = m.puts / m.at.Seconds()
			if from := moments[i/2]; i > 0 {
				j.before = (m.puts - from.puts) / (m.at - from.at).Seconds()
			}
			continue
		case since < loadWindow:
			continue // the window reaches back behind the jump
		}
		rates = append(rates, rate)
		if j.moved == 0 && m.moved {
			j.moved = since
		}
		if j.even == 0 && busiest <= evenLoads*sum/float64(len(m.worked)) {
			j.even = since
		}
		if j.back == 0 && rate >= regained*j.before {
			j.back = since
		}
	}
	j.rightBehind, j.end = rates[0], rates[len(rates)-1]
	j.uneven = unevenness(moments[len(moments)/2:])
}

// unevenness is the busiest loop's load over the mean of all.
func unevenness(moments []moment) float64 {
	first, last := moments[0], moments[len(moments)-1]
	busiest, sum := 0.0, 0.0
	for q, w := range last.worked {
		busiest, sum = max(busiest, w-first.worked[q]), sum+w-first.worked[q]
	}
	return busiest / (sum / float64(len(last.worked)))
}

func (j *jumped) row(how string) []string {
	row := []string{how, fmt.Sprintf("%.0f", j.before), fmt.Sprintf("%.0f", j.rightBehind), fmt.Sprintf("%.0f", j.end), after(j.back), after(j.moved),
		fmt.Sprintf("%.0f", j.decisions), fmt.Sprintf("%.0f", j.slots), after(j.even), ratioText(j.uneven)}
	for _, d := range j.p99 {
		row = append(row, round(d).String())
	}
	return row
}

// after is how long behind the jump something was so.
func after(d time.Duration) string {
	if d == 0 {
		return "never"
	}
	return d.Round(100 * time.Millisecond).String()
}

func jumpVerdict(all []jumped) verdict {
	var took []string
	v := verdict{goal: "balance, from the jump until the busiest loop has at most 10 % more to do than the mean", asked: "≤ " + paperJump.String()}
	for _, j := range all {
		took = append(took, after(j.even))
		v.missed = v.missed || j.even == 0 || j.even > paperJump
	}
	v.measured = strings.Join(took, ", ")
	return v
}
