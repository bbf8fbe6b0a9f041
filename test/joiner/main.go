// Joiner measures what a new member costs the others: three servers with many keys serve puts at
// a fixed rate, a fourth is added as a learner with an empty directory, and is promoted as soon
// as that is accepted. It prints the time until it is a voter, and the latencies of the puts
// before and meanwhile, of stoa and of etcd in turns, as a table in Markdown.
//
// Latencies count from the time at which a put was due, so a pause shows in all that come due
// in it.
//
//	go run ./test/joiner -keys 1000000 -rate 1000 -rounds 3
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/stoa-kv/stoa/test/process"
)

type settings struct {
	keys, rate, rounds, clients int
	quiet, course               time.Duration
}

func main() {
	var s settings
	flag.IntVar(&s.keys, "keys", 1_000_000, "keys in the cluster, with values of 256 bytes")
	flag.IntVar(&s.rate, "rate", 1000, "puts per second")
	flag.IntVar(&s.clients, "clients", 100, "puts under way at most")
	flag.IntVar(&s.rounds, "rounds", 3, "measurements of each server")
	flag.DurationVar(&s.quiet, "quiet", 15*time.Second, "how long the puts are measured before a member joins")
	flag.DurationVar(&s.course, "course", 0, "write the latencies of each such step while the member joins to the standard error")
	only := flag.String("only", "", "stoa or etcd alone")
	flag.Parse()
	kinds := []string{"stoa", "etcd"}
	if *only != "" {
		kinds = []string{*only}
	}
	if err := s.run(kinds); err != nil {
		fmt.Fprintln(os.Stderr, "joiner:", err)
		os.Exit(1)
	}
}

// result is one member that joined.
type result struct {
	serves, votes    time.Duration // since it was added
	quiet, meanwhile latencies
}

func (s *settings) run(kinds []string) error {
	results := map[string][]result{}
	for range s.rounds {
		for _, kind := range kinds {
			dir, err := os.MkdirTemp("", "stoa-joiner-")
			if err != nil {
				return err
			}
			r, err := s.round(kind, dir)
			if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
				return fmt.Errorf("%s: %w", kind, err)
			}
			fmt.Fprintf(os.Stderr, "%s: a voter after %.1f s; p99 %v before, %v meanwhile\n", kind, r.votes.Seconds(),
				r.quiet.at(0.99).Round(10*time.Microsecond), r.meanwhile.at(0.99).Round(10*time.Microsecond))
			results[kind] = append(results[kind], r)
		}
	}
	s.print(kinds, results)
	return nil
}

// round is one cluster, filled, measured and joined.
func (s *settings) round(kind, dir string) (r result, err error) {
	bin, err := process.Choose(kind)
	if err != nil {
		return r, err
	}
	ctx := context.Background()
	c, err := process.Start(ctx, process.Spec{
		Binary: bin, Dir: dir, Nodes: 3, Partitions: 4, Timeout: 5 * time.Minute, Args: []string{"--quota-backend-bytes=8589934592"},
	})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := process.Fill(s.keys, c.Endpoints()...); err != nil {
		return r, err
	}
	time.Sleep(6 * time.Second) // flushes, compactions of the log, and the time after which members count as connected
	load, err := s.begin(c)
	if err != nil {
		return r, err
	}
	time.Sleep(2 * time.Second) // until it is warm
	load.take()
	time.Sleep(s.quiet)
	r.quiet = latenciesOf(load.take())
	began := time.Now()
	r.serves, r.votes, err = join(ctx, c)
	took := time.Since(began)
	puts := load.take()
	r.meanwhile = latenciesOf(puts)
	if s.course > 0 {
		course(os.Stderr, puts, s.course)
	}
	if err := errors.Join(err, load.end()); err != nil {
		return r, err
	}
	if want := took.Seconds() * float64(s.rate) * 0.8; float64(len(r.meanwhile)) < want {
		return r, fmt.Errorf("%d puts in %v: the servers don't keep up with the rate", len(r.meanwhile), took)
	}
	return r, nil
}

func (s *settings) print(kinds []string, results map[string][]result) {
	fmt.Printf("%d keys, 3 servers and a fourth, %d puts/s, medians of %d rounds\n\n", s.keys, s.rate, s.rounds)
	fmt.Println("| | serves | is a voter | p50 of puts before, meanwhile | p99 | longest | p99 meanwhile / before |\n| --- | --- | --- | --- | --- | --- | --- |")
	for _, kind := range kinds {
		all := results[kind]
		ms := func(of func(*result) time.Duration) string {
			return fmt.Sprintf("%.1f ms", float64(median(all, of).Microseconds())/1000)
		}
		before := func(q float64) string { return ms(func(r *result) time.Duration { return r.quiet.at(q) }) }
		meanwhile := func(q float64) string { return ms(func(r *result) time.Duration { return r.meanwhile.at(q) }) }
		ratio := float64(median(all, func(r *result) time.Duration { return r.meanwhile.at(0.99) })) /
			float64(median(all, func(r *result) time.Duration { return r.quiet.at(0.99) }))
		fmt.Printf("| %s | %.1f s | %.1f s | %s, %s | %s, %s | %s, %s | %.1fx |\n", kind,
			median(all, func(r *result) time.Duration { return r.serves }).Seconds(),
			median(all, func(r *result) time.Duration { return r.votes }).Seconds(),
			before(0.5), meanwhile(0.5), before(0.99), meanwhile(0.99), before(1), meanwhile(1), ratio)
	}
}

func median(all []result, of func(*result) time.Duration) time.Duration {
	var v []time.Duration
	for i := range all {
		v = append(v, of(&all[i]))
	}
	slices.Sort(v)
	return v[len(v)/2]
}
