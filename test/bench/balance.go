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
	// jumpDirectories are so many that each session goes on with another one: what moves is a directory,
	// and from 17 or 18 that five or six sessions share nobody could make loads that differ by less than a tenth.
	jumpDirectories = 1000
	// beforeJump is so long, and longer until there was no decision for the time of calm: the keys are spread
	// by chance, and the balancer sees to what is uneven of that.
	beforeJump = 15 * time.Second
	calm       = 20 * time.Second
	behindJump = 30 * time.Second
	// unhurried is the part of the throughput of sessions that always have jumpDepth puts under way
	// at which sessions send at a fixed rate: loops are uneven at it if the load is, and
	// don't slow each other down, as those of closed loops do.
	unhurried = 0.6
	calibrate = 3 * time.Second
	// hotSet is how long a hot set stays that jumps from partition to partition.
	hotSet   = 5 * time.Second
	lookEach = 100 * time.Millisecond
	plotEach = 3 // looks
	// loadWindow is the time over which a loop's load is taken.
	loadWindow = time.Second
	// evenLoads: the busiest loop has at most so much more to do than the mean.
	evenLoads = 1.1
	// regained is the part of the throughput before the jump.
	regained = 0.9
	// paperJump is how long it took in the paper, on servers of 8 cores, with 4 partitions, in the mean of 16
	// experiments.
	paperJump = 3700 * time.Millisecond
)

// moment is what a server had done at a time.
type moment struct {
	at     time.Duration // since the load began
	worked []float64     // by partition: seconds
	puts   float64
	moving bool // slots are on their way

	decisions, slots float64
}

// jumped is one run of a load that jumps.
type jumped struct {
	before, rightBehind, end float64       // puts per second
	decided, moved           time.Duration // from the jump on; 0: not at all
	even, back               time.Duration
	uneven                   float64         // the busiest loop's load over the mean, at the end
	p99                      []time.Duration // before, behind the jump, at the end
	decisions, slots         float64
	loads                    []plot.Series // of the loops, over the time since the jump
}

// balanceCase is one way in which the balancer is measured.
type balanceCase struct {
	name    string
	measure func(p *plan, s *section, name string) error
}

// balanceCases are all, in their order.
var balanceCases = []balanceCase{
	{"jump, closed loops, off", func(p *plan, s *section, name string) error { return p.jumps(s, name, "off", false) }},
	{"jump, closed loops, on", func(p *plan, s *section, name string) error { return p.jumps(s, name, "on", false) }},
	{"jump, fixed rate, off", func(p *plan, s *section, name string) error { return p.jumps(s, name, "off", true) }},
	{"jump, fixed rate, on", func(p *plan, s *section, name string) error { return p.jumps(s, name, "on", true) }},
	{"uniform load", (*plan).uniformLoad},
	{"hot set that jumps", (*plan).hotSetJumps},
}

// measureBalance makes all sessions go on with keys of one partition, leaves them with all, or
// has them jump all the time.
func measureBalance(p *plan) (s section, err error) {
	s.rows = [][]string{{"load, balancer", "puts/s before", "just behind the jump", "at the end", fmt.Sprintf("%.0f %% after", regained*100), "decided after", "slots moved after", "decisions", "slots", "loops even after", "busiest loop over mean at the end", "p99 before", "behind", "at the end"}}
	s.charts = map[string]plot.Chart{"bench-balance.svg": {Title: fmt.Sprintf("All load jumps onto one of %d partitions", p.parts)}}
	for _, c := range balanceCases {
		if !strings.Contains(c.name, p.stalls) {
			continue
		}
		if err := c.measure(p, &s, c.name); err != nil {
			return s, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	if len(s.charts["bench-balance.svg"].Panels) == 0 {
		s.charts = nil
	}
	s.text = fmt.Sprintf("Figure 10 of AGORA: %d sessions of depth %d on one server with %d partitions, puts of %d B, each session within one of %d directories. After %v or more all sessions go on with directories of partition 0, each with its own. "+
		"What is uneven before, since the directories are spread by chance, the balancer has seen to %v before that, and it is partition 0 as that left it. In closed loops a session sends a put for each answer; at a fixed rate all together send %.0f %% of what they reach so, whatever the answers do. "+
		"A loop's load is the part of the last %v that it worked. The loops are even from the beginning of the first such time on in which the busiest has at most %.0f %% more to do than the mean. "+
		"AGORA, on servers of 8 cores with a core for each partition, has its throughput back after %v, with 4 partitions. Servers and clients share %d cores here, so a balanced load is not much faster than one on one partition: what is asked is how soon the loops are even.",
		jumpSessions, jumpDepth, p.parts, jumpValue, jumpDirectories, beforeJump, calm, unhurried*100, loadWindow, (evenLoads-1)*100, paperJump, runtime.NumCPU())
	return s, nil
}

// jumps measures the load that jumps, several times.
func (p *plan) jumps(s *section, name, how string, paced bool) error {
	var all []jumped
	for range p.rounds {
		j, err := p.jump(how, paced)
		if err != nil {
			return err
		}
		s.rows = append(s.rows, j.row(name))
		fmt.Fprintln(os.Stderr, j.row(name))
		all = append(all, j)
	}
	chart := s.charts["bench-balance.svg"]
	chart.Panels = append(chart.Panels, plot.Panel{Title: name, X: "s since the jump", Y: "% of its time that a loop works", Series: all[0].loads})
	s.charts["bench-balance.svg"] = chart
	if how == "on" {
		s.verdicts = append(s.verdicts, jumpVerdict(name, all))
	}
	return nil
}

// paceOf is the rate at which sessions send that don't wait for answers.
func (a *arena) paceOf(w work) (float64, error) {
	r, err := a.overSessions(w).start()
	if err != nil {
		return 0, err
	}
	time.Sleep(calibrate / 3)
	before, err := a.moment(0)
	began := time.Now()
	time.Sleep(calibrate)
	took := time.Since(began).Seconds()
	after, err2 := a.moment(0)
	return unhurried * (after.puts - before.puts) / took, errors.Join(err, err2, r.stop())
}

func (p *plan) jump(how string, paced bool) (j jumped, err error) {
	a, err := newArena(p, arenaOf{nodes: jumpNodes, parts: p.parts, value: jumpValue, directories: jumpDirectories, args: []string{"--balance=" + how}})
	if err != nil {
		return j, err
	}
	defer func() { a.close(err != nil) }()
	var hot atomic.Pointer[[]int]
	w := work{op: "put", sessions: jumpSessions, depth: jumpDepth, pick: jumping(a.keys, &hot)}
	if paced {
		if w.pace, err = a.paceOf(w); err != nil {
			return j, err
		}
	}
	r, err := a.overSessions(w).start()
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
	for err == nil && how == "on" && !calmSince(moments, calm) {
		err = watch(calm / 4)
	}
	lists, err2 := a.partitions()
	if err = errors.Join(err, err2); err != nil {
		return j, errors.Join(err, r.stop())
	}
	j.p99 = j.p99[len(j.p99)-1:]
	onto := a.keys.directoriesOf(lists[0])
	jump := time.Since(began)
	hot.Store(&onto)
	err = errors.Join(watch(behindJump/2), watch(behindJump/2), r.stop())
	if err != nil {
		return j, err
	}
	j.judge(moments, jump)
	return j, nil
}

// calmSince reports whether there was no decision for a time.
func calmSince(moments []moment, d time.Duration) bool {
	last := moments[len(moments)-1]
	for _, m := range slices.Backward(moments) {
		if m.decisions != last.decisions {
			return false
		}
		if last.at-m.at >= d {
			return true
		}
	}
	return false
}

// jumping picks keys of one directory for each session, and once there are hot directories of one of
// those.
func jumping(k *keyspace, hot *atomic.Pointer[[]int]) func(session int) picker {
	return func(session int) picker {
		own, jumped := k.ownKeys(session), false
		return func() int {
			if onto := hot.Load(); onto != nil && !jumped {
				own, jumped = k.ownKeys((*onto)[session%len(*onto)]), true
			}
			return own()
		}
	}
}

// directoriesOf are those of keys.
func (k *keyspace) directoriesOf(keys []int) (list []int) {
	for _, i := range keys {
		if d := i % k.directories; !slices.Contains(list, d) {
			list = append(list, d)
		}
	}
	return list
}

// moment asks the server what it has done.
func (a *arena) moment(parts int) (m moment, err error) {
	all, err := metricsOf("http://" + a.leader)
	if err != nil {
		return m, err
	}
	m.puts = all["etcd_mvcc_put_total"]
	m.moving = all["stoa_keys_moving"] != 0
	m.decisions, m.slots = all["stoa_balancer_decisions_total"], all["stoa_balancer_slots_moved_total"]
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
	var last moment     // before the jump
	for i, m := range moments {
		for m.at-moments[first].at > loadWindow {
			first++
		}
		took := (m.at - moments[first].at).Seconds()
		if took < loadWindow.Seconds()/2 {
			continue
		}
		since := m.at - jump
		busiest, sum := 0.0, 0.0
		for q, w := range m.worked {
			load := (w - moments[first].worked[q]) / took
			busiest, sum = max(busiest, load), sum+load
			if since >= 0 && i%plotEach == 0 {
				j.loads[q].Points = append(j.loads[q].Points, plot.Point{X: since.Seconds(), Y: 100 * load})
			}
		}
		rate := (m.puts - moments[first].puts) / took
		switch {
		case since <= 0:
			last = m
			j.before = m.puts / m.at.Seconds()
			if from := moments[i/2]; i > 0 {
				j.before = (m.puts - from.puts) / (m.at - from.at).Seconds()
			}
			continue
		case since < loadWindow:
			continue // the window reaches back behind the jump
		}
		rates = append(rates, rate)
		j.decisions, j.slots = m.decisions-last.decisions, m.slots-last.slots
		if j.decided == 0 && j.decisions > 0 {
			j.decided = since
		}
		if j.moved == 0 && j.decisions > 0 && !m.moving {
			j.moved = since
		}
		if j.even == 0 && busiest <= evenLoads*sum/float64(len(m.worked)) {
			j.even = max(moments[first].at-jump, lookEach) // for all of the window
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
	row := []string{how, fmt.Sprintf("%.0f", j.before), fmt.Sprintf("%.0f", j.rightBehind), fmt.Sprintf("%.0f", j.end), after(j.back), after(j.decided), after(j.moved),
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

func jumpVerdict(name string, all []jumped) verdict {
	var took []string
	v := verdict{goal: "balance, " + name + ": from the jump until the busiest loop has at most 10 % more to do than the mean", asked: "≤ " + paperJump.String()}
	for _, j := range all {
		took = append(took, after(j.even))
		v.missed = v.missed || j.even == 0 || j.even > paperJump
	}
	v.measured = strings.Join(took, ", ")
	return v
}

// uniformLoad is one over all keys: nothing has to move.
func (p *plan) uniformLoad(s *section, name string) error {
	seen, err := p.decisions(p.uniform, func(a *arena, _ func() time.Duration) (func(int) picker, error) {
		return a.keys.ownKeys, nil
	})
	if err != nil {
		return err
	}
	s.verdicts = append(s.verdicts, verdict{goal: fmt.Sprintf("balance, %s for %v, at a fixed rate: decisions", name, p.uniform), asked: "0",
		measured: fmt.Sprintf("%d (%v)", len(seen.at), &seen), missed: len(seen.at) > 0})
	return nil
}

// hotSetJumps is a load on the directories that one partition had at the start, and every few
// seconds on those of the next one.
func (p *plan) hotSetJumps(s *section, name string) error {
	seen, err := p.decisions(p.jumping, func(a *arena, since func() time.Duration) (func(int) picker, error) {
		lists, err := a.partitions()
		return func(session int) picker {
			var sets []picker
			for _, keys := range lists {
				hot := a.keys.directoriesOf(keys)
				sets = append(sets, a.keys.ownKeys(hot[session%len(hot)]))
			}
			return func() int { return sets[int(since()/hotSet)%len(sets)]() }
		}, err
	})
	if err != nil {
		return err
	}
	closest := p.jumping
	for i := 1; i < len(seen.at); i++ {
		closest = min(closest, seen.at[i]-seen.at[i-1])
	}
	s.verdicts = append(s.verdicts, verdict{goal: fmt.Sprintf("balance, %s every %v, for %v, at a fixed rate: time between decisions", name, hotSet, p.jumping), asked: "≥ 1m0s",
		measured: fmt.Sprintf("%v (%d decisions; %v)", closest.Round(time.Second), len(seen.at), &seen), missed: closest < time.Minute})
	return nil
}

// compacted keeps the history of a load that goes on for long small.
var compacted = []string{"--auto-compaction-mode=periodic", "--auto-compaction-retention=20s"}

// decisions returns what is seen of the balancer under a load at a fixed rate for a time.
func (p *plan) decisions(d time.Duration, pick func(a *arena, since func() time.Duration) (func(int) picker, error)) (seen decided, err error) {
	a, err := newArena(p, arenaOf{nodes: jumpNodes, parts: p.parts, value: jumpValue, args: append([]string{"--balance=on"}, compacted...)})
	if err != nil {
		return seen, err
	}
	defer func() { a.close(err != nil) }()
	w := work{op: "put", sessions: jumpSessions, depth: jumpDepth, pick: a.keys.ownKeys}
	if w.pace, err = a.paceOf(w); err != nil {
		return seen, err
	}
	began := time.Now()
	if w.pick, err = pick(a, func() time.Duration { return time.Since(began) }); err != nil {
		return seen, err
	}
	r, err := a.overSessions(w).start()
	if err != nil {
		return seen, err
	}
	err = seen.watch(func() (moment, error) { return a.moment(p.parts) }, func() time.Duration { return time.Since(began) }, d, lookEach)
	return seen, errors.Join(err, r.stop())
}
