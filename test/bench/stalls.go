package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stoa-kv/stoa/test/process"
)

// Of the load beside what is large.
const (
	stallConns = 8
	stallNodes = 3
	quietTime  = 2 * time.Second
	// leastTime is how long something that can be repeated is repeated, so that there
	// are puts enough beside it.
	leastTime = time.Second
)

// stallArgs make followers that lag need a snapshot soon, on both servers alike.
var stallArgs = []string{"--snapshot-count=1000", "--snapshot-catchup-entries=100"}

// largeNote says what puts wait for beside large ones, as measured by stages of a put, by
// perf, and by a program that only writes and syncs as much.
const largeNote = "The delay of puts beside those of 1 MiB, as investigated on 2 virtual cores: the quiet load alone takes 80 to 85 % of the machine. " +
	"A put of 1 MiB takes the three servers 35 to 50 ms of CPU time, about a third of it for memory that is touched for the first time (1 ms per MiB) and a fifth for copies into the page cache, " +
	"of the log and of the backend file, on each server. It is the log's next entry for as long as it is written, sent and synced, which takes 10 to 25 ms; what comes behind it in its partition, and in the same log, waits. " +
	"The disk is not the bottleneck: beside 6 files with 20 MiB/s of synced writes each, a sync of 600 B has its p99 at 5 to 7 ms, as it has alone (2 to 8 ms)."

// staller is a cluster under a steady load of small puts.
type staller struct {
	*bench
	p    *plan
	sent time.Time // when a follower last needed a snapshot
}

// disturbance is something large that goes on beside small puts.
type disturbance struct {
	name     string
	onlyStoa bool
	prepare  func(*staller) error // not measured
	do       func(*staller) error // measured from its begin to its end
	once     bool                 // can't be repeated at once
}

// stalled is what the puts of one subject waited, quiet and disturbed, by round.
type stalled struct {
	quiet, beside []histogram
	took          durations
	elections     uint64       // that there were meanwhile
	failed        atomic.Int64 // puts that were answered by an error
}

// measureStalls measures small puts while something large goes on.
func measureStalls(p *plan) (section, error) {
	s, err := p.stall(disturbances, stallNodes)
	s.notes = []string{largeNote}
	return s, err
}

func (p *plan) stall(beside []disturbance, nodes int) (s section, err error) {
	sized := *p
	sized.keys = p.keysStalls
	var all []*bench
	defer func() { end(all, &err) }()
	var stallers []*staller
	for _, subject := range p.subjects {
		subject.args = append(slices.Clone(subject.args), stallArgs...)
		b, err := newBench(&sized, subject, nodes)
		if err != nil {
			return s, err
		}
		all = append(all, b)
		stallers = append(stallers, &staller{bench: b, p: p})
	}
	s.rows = [][]string{{"beside", "server", "took", "p99 quiet", "p99 beside", "longest quiet", "longest beside", "elections", "failed puts", "p99 ratio"}}
	for _, d := range beside {
		if !strings.Contains(d.name, p.stalls) {
			continue
		}
		puts := make([]stalled, len(all))
		for range p.rounds {
			for i, b := range all {
				if d.onlyStoa && !b.subject.bin.Stoa {
					continue
				}
				if err := stallers[i].round(d, &puts[i]); err != nil {
					return s, fmt.Errorf("%s, %s: %w", d.name, b.subject.name, err)
				}
			}
		}
		for i, b := range all {
			if len(puts[i].quiet) == 0 {
				continue
			}
			row, r := puts[i].row(d.name, b.subject.name)
			s.rows = append(s.rows, row)
			fmt.Fprintln(os.Stderr, strings.Join(row, "  "))
			if i == 1 {
				s.verdicts = append(s.verdicts, atMost("stalls, beside "+d.name+": p99 of puts over the quiet p99", r, 2))
			}
		}
	}
	s.text = fmt.Sprintf("%d nodes, %d keys of %d B, %.0f puts per second over %d connections to all servers that run, each sent at its time whether or not others are answered. "+
		"Each of %d rounds: %v quiet, then what goes on beside, for at least %v where it can be repeated; a put counts if it is answered before that ends or within %v. "+
		"All servers with `%s`, so that a follower that was away needs a snapshot; that one was sent is checked.",
		nodes, p.keysStalls, p.value, p.pace, stallConns, p.rounds, quietTime, leastTime, afterTime, strings.Join(stallArgs, " "))
	return s, nil
}

// row merges the rounds for the quantiles; the ratio is that of rounds.
func (st *stalled) row(name, server string) ([]string, ratio) {
	var quiet, beside histogram
	var q, b []float64
	for i := range st.quiet {
		quiet.merge(&st.quiet[i])
		beside.merge(&st.beside[i])
		q = append(q, float64(st.quiet[i].quantile(0.99)))
		b = append(b, float64(st.beside[i].quantile(0.99)))
	}
	r := ratioOf(b, q)
	return []string{name, server, st.took.String(), round(quiet.quantile(0.99)).String(), round(beside.quantile(0.99)).String(),
		round(quiet.longest).String(), round(beside.longest).String(), fmt.Sprint(st.elections), fmt.Sprint(st.failed.Load()), r.String()}, r
}

// afterTime is for the answers to what was held up.
const afterTime = 100 * time.Millisecond

// round measures once, quiet and beside the disturbance.
func (s *staller) round(d disturbance, into *stalled) error {
	before, err := elections(s.cluster)
	if err != nil {
		return err
	}
	defer func() {
		if after, err := elections(s.cluster); err == nil {
			into.elections += after - before
		}
	}()
	if d.prepare != nil {
		if err := d.prepare(s); err != nil {
			return err
		}
		time.Sleep(time.Second) // until what that left to do is done
	}
	quiet, err := s.window(&into.failed, func() error { time.Sleep(s.quietTime()); return nil })
	if err != nil {
		return err
	}
	var took time.Duration
	kept := s.p.keep(s.cluster, "stalls "+d.name, 2)
	beside, err := s.window(&into.failed, func() error {
		began := time.Now()
		for {
			if err := d.do(s); err != nil {
				return err
			}
			took = time.Since(began)
			if d.once || took > leastTime {
				return nil
			}
		}
	})
	if err := errors.Join(err, <-kept); err != nil {
		return err
	}
	into.quiet = append(into.quiet, *quiet)
	into.beside = append(into.beside, *beside)
	into.took = append(into.took, took)
	return nil
}

func (s *staller) quietTime() time.Duration {
	if s.p.quick {
		return quietTime / 2
	}
	return quietTime
}

// window puts the load on and measures it while something is done.
func (s *staller) window(failed *atomic.Int64, do func() error) (*histogram, error) {
	l := *s.load
	l.pace, l.addresses, l.failed = s.p.pace, nil, failed
	for _, server := range s.cluster.Servers {
		if server.Running() {
			l.addresses = append(l.addresses, address(server))
		}
	}
	r := l.start("put", stallConns)
	time.Sleep(s.p.warmup)
	r.record()
	err := do()
	time.Sleep(afterTime)
	hist := r.recorded()
	if err := errors.Join(err, r.stop()); err != nil {
		return nil, err
	}
	if hist.count == 0 {
		return nil, errors.New("not one put was answered")
	}
	return hist, nil
}

// snapshotsSent counts what the servers' logs tell of snapshots to followers.
func snapshotsSent(c *process.Cluster) (n int, err error) {
	const line = "sending database snapshot" // of etcd, too
	for _, s := range c.Servers {
		text, err := os.ReadFile(s.LogFile)
		if err != nil {
			return 0, fmt.Errorf("looking for snapshots in the log of %s: %w", s.Name, err)
		}
		n += strings.Count(string(text), line)
	}
	return n, nil
}
