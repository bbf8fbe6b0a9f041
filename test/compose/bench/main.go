// Bench measures what a composition of clusters costs and gains over distances: the
// figures 5, 6, 7 and 8 of Lev-Ari et al., Modular Composition of Coordination Services,
// with client/compose over clusters of stoa and of real etcd.
//
//	go run ./test/compose/bench                     all of it, about ten minutes
//	go run ./test/compose/bench -quick              few cells, short rounds
//	go run ./test/compose/bench -servers stoa -locals 100 -reads 50
//	go run ./test/compose/bench -write docs/benchmarks-compose.md -img docs/img   (make bench-compose)
//	go run ./test/compose/bench -mirrors            mirrored keys: figure 3 of Halalai et al., ZooFence (figure3.go)
//
// Two regions, east and west, lie 25 ms each way apart (package region; where that isn't
// permitted nothing is measured, and a message says so). Each has a cluster of its own:
// three voters at home, and one member in the other region that serves the reads there:
// a learner with etcd; with stoa, which has none, a fourth voter that is never needed for
// a majority. Clients of both regions work at the same time.
//
// What is compared, on the same servers, all through client/compose:
//
//	composed    syncs as Algorithm 1 demands
//	never-sync  no syncs: inconsistent, the fastest there can be
//	sync-all    every read is synced
//	stretched   one cluster for all keys, the eastern one with its member in the west
//
// and, for what the composition costs where it isn't needed, a plain session of stoa's
// client or an etcd client.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/stoa-kv/stoa/test/region"
	"github.com/stoa-kv/stoa/test/sheet"
)

// plan is what a run measures.
type plan struct {
	servers []string
	reads   []int // percent
	locals  []int // percent
	bursts  []int
	clients int   // of each region
	loads   []int // numbers of clients with which composed and stretched are compared
	window  int
	oneWay  time.Duration
	length  time.Duration // of a round
	warmup  time.Duration
	rounds  int // of the local work, in pairs, or of mirrored keys; of which the median counts
	stoa    string

	mirrors    bool // figure 3 of ZooFence's paper, in place of all else
	write, img string
}

const valueSize = 1024 // as in the paper

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	p, err := parse(os.Args[1:])
	if err == nil {
		err = run(ctx, p)
	}
	cancel()
	if errors.Is(err, region.ErrNotPermitted) {
		fmt.Fprintln(os.Stderr, "compose: skipped:", err)
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "compose:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*plan, error) {
	f := flag.NewFlagSet("compose", flag.ExitOnError)
	p := &plan{}
	var (
		quick   = f.Bool("quick", false, "few cells, short rounds, stoa alone")
		servers = f.String("servers", "", "what the clusters run (default stoa,etcd)")
		reads   = f.String("reads", "", "percentages of reads (default 50,90,99,100)")
		locals  = f.String("locals", "", "percentages of requests to the own region's cluster (default 0,50,80,100)")
		bursts  = f.String("bursts", "", "requests in a row to one cluster (default 1,10,25,50)")
	)
	loads := f.String("loads", "1,3,10", "clients of each region in the comparison over loads")
	f.IntVar(&p.clients, "clients", 3, "clients of each region")
	f.IntVar(&p.window, "window", 25, "requests that a client has under way at most")
	f.DurationVar(&p.oneWay, "oneway", 25*time.Millisecond, "time from one region to the other")
	f.DurationVar(&p.length, "length", 0, "time that a round is measured (default 600ms)")
	f.DurationVar(&p.warmup, "warmup", 0, "time that a round runs before (default 400ms, 200ms with -mirrors)")
	f.IntVar(&p.rounds, "rounds", 0, "pairs of rounds of the local work by plain clients and by composed ones (default 12); with -mirrors, rounds (5)")
	f.BoolVar(&p.mirrors, "mirrors", false, "measure mirrored keys, and nothing else")
	f.StringVar(&p.stoa, "stoa", "stoa", "path of stoa's binary (default: built from this checkout)")
	f.StringVar(&p.write, "write", "", "write the report, as Markdown, to this file")
	f.StringVar(&p.img, "img", "", "draw the plots, as SVG, into this directory")
	f.Parse(args)

	defaults := [4]string{"stoa,etcd", "50,90,99,100", "0,50,80,100", "1,10,25,50"}
	if p.mirrors {
		defaults = [4]string{"stoa,etcd", "90,100", "0,85,100", "50"}
	}
	length, warmup, rounds := 600*time.Millisecond, 400*time.Millisecond, 12
	if p.mirrors {
		length, warmup, rounds = 300*time.Millisecond, 200*time.Millisecond, 5
	}
	if *quick {
		defaults = [4]string{"stoa", "50,100", "0,80,100", "1,50"}
		length = 400 * time.Millisecond
	}
	p.length, p.warmup, p.rounds = cmp.Or(p.length, length), cmp.Or(p.warmup, warmup), cmp.Or(p.rounds, rounds)
	p.servers = strings.Split(given(*servers, defaults[0]), ",")
	var errs [4]error
	p.reads, errs[0] = numbers(given(*reads, defaults[1]))
	p.locals, errs[1] = numbers(given(*locals, defaults[2]))
	p.bursts, errs[2] = numbers(given(*bursts, defaults[3]))
	p.loads, errs[3] = numbers(*loads)
	return p, errors.Join(errs[:]...)
}

func given(list, otherwise string) string {
	if list == "" {
		return otherwise
	}
	return list
}

func numbers(list string) ([]int, error) {
	out, err := sheet.Numbers(list, 0)
	slices.Sort(out)
	return slices.Compact(out), err
}

func run(ctx context.Context, p *plan) error {
	world, err := region.New(2, p.oneWay)
	if err != nil {
		return err
	}
	defer world.Close()
	rep := newReport(p)
	var broken error
	for _, server := range p.servers {
		if err := measure(ctx, p, server, world, rep); err != nil {
			// What was measured before is reported, and that it isn't all.
			broken = errors.Join(broken, fmt.Errorf("on %s: %w", server, err))
		}
	}
	rep.broken = broken
	rep.text(os.Stdout)
	return errors.Join(broken, rep.keep())
}

// keep writes and draws the report, as far as that is wanted.
func (r *report) keep() error {
	p := r.plan
	if p.img != "" {
		charts := r.charts
		if p.mirrors {
			charts = r.charts3
		}
		if err := sheet.Draw(p.img, charts()); err != nil {
			return err
		}
	}
	switch {
	case p.write == "":
		return nil
	case p.mirrors:
		return sheet.Keep(p.write, r.markdown3)
	}
	return sheet.Keep(p.write, r.markdown)
}
