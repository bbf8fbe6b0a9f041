// Recipes measures a shared counter, a queue, a barrier and an election side by side:
// the traditional recipes over real etcd, over ZooKeeper and over stoa, and the
// extensions of stoa that do each of them in one call, by etcd's client and over a
// session of stoa's. It has the shape of figures 6,
// 8, 10 and 12 of Distler et al., Extensible Distributed Coordination.
//
//	go run ./test/recipes                    1 and 3 servers, 1 to 50 clients: eight minutes
//	go run ./test/recipes -clients 1,5,10,20,30,40,50 -rounds 3 -length 1500ms    half an hour
//	go run ./test/recipes -quick             short rounds of 1, 10 and 50 clients, 3 servers
//	go run ./test/recipes -recipes counter -subjects etcd,zookeeper -clients 50
//	go run ./test/recipes -write docs/benchmarks-recipes.md -img docs/img    (make bench-recipes)
//
// Every client has a connection of its own and one operation under way; the clients
// are spread over the servers. The clusters of all subjects stand side by side and the
// rounds of a cell are interleaved, so that what drifts on the machine hits all. Bytes
// are what the clients wrote to their sockets; CPU is that of all servers of a cluster,
// from /proc. After every round the recipe's promise is checked: a failure ends the run.
//
// Where there is no java ZooKeeper is left out, and where a server takes no extensions
// these are, with a message.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/stoa-kv/stoa/test/process"
	"github.com/stoa-kv/stoa/test/recipes/recipe"
	"github.com/stoa-kv/stoa/test/sheet"
)

// plan is what a run measures.
type plan struct {
	subjects   []string
	nodes      []int
	clients    []int
	recipes    []string
	rounds     int
	length     time.Duration
	warmup     time.Duration // of each round
	heat       time.Duration // before the first round of a recipe
	stoa       string        // what process.Choose takes
	extensions string        // the directory of the .lua files
	write, img string
}

func main() {
	// The servers end with the context: on a signal too, nothing stays behind.
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	p, err := parse(os.Args[1:])
	if err == nil {
		err = run(ctx, p)
	}
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "recipes:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*plan, error) {
	f := flag.NewFlagSet("recipes", flag.ExitOnError)
	p := &plan{}
	var (
		quick    = f.Bool("quick", false, "one short round of each cell, 3 servers, 1, 10 and 50 clients")
		names    = f.String("subjects", strings.Join(allSubjects, ","), "what to compare")
		nodes    = f.String("nodes", "", "servers to a cluster (default 1,3)")
		clients  = f.String("clients", "", "clients that work at once (default 1,10,50)")
		selected = f.String("recipes", strings.Join(recipe.Names, ","), "which recipes")
	)
	f.IntVar(&p.rounds, "rounds", 0, "rounds of each cell, of which the median counts (default 2)")
	f.DurationVar(&p.length, "length", 0, "time that a round is measured (default 1s)")
	f.DurationVar(&p.warmup, "warmup", 300*time.Millisecond, "time that a round runs before")
	f.DurationVar(&p.heat, "heat", 0, "time that each recipe runs with all clients before its first round, for the JVM's compiler (default 2s)")
	f.StringVar(&p.stoa, "stoa", "stoa", "path of stoa's binary (default: built from this checkout)")
	f.StringVar(&p.extensions, "extensions", "", "directory of counter.lua and the others (default: the repository's)")
	f.StringVar(&p.write, "write", "", "write the report, as Markdown, to this file")
	f.StringVar(&p.img, "img", "", "draw the plots, as SVG, into this directory")
	f.Parse(args)

	defaults := struct {
		nodes, clients string
		rounds         int
		length, heat   time.Duration
	}{"1,3", "1,10,50", 2, time.Second, 2 * time.Second}
	if *quick {
		defaults.nodes, defaults.clients, defaults.rounds = "3", "1,10,50", 1
		defaults.length, defaults.heat = time.Second, time.Second
	}
	if p.heat == 0 {
		p.heat = defaults.heat
	}
	if p.rounds == 0 {
		p.rounds = defaults.rounds
	}
	if p.length == 0 {
		p.length = defaults.length
	}
	var err error
	if p.nodes, err = numbers(*nodes, defaults.nodes); err != nil {
		return nil, err
	}
	if p.clients, err = numbers(*clients, defaults.clients); err != nil {
		return nil, err
	}
	if p.subjects, err = chosen("-subjects", *names, allSubjects); err != nil {
		return nil, err
	}
	if p.recipes, err = chosen("-recipes", *selected, recipe.Names); err != nil {
		return nil, err
	}
	if p.extensions == "" {
		root, err := process.Root()
		if err != nil {
			return nil, err
		}
		p.extensions = filepath.Join(root, "extensions")
	}
	return p, nil
}

func numbers(list, otherwise string) ([]int, error) {
	if list == "" {
		list = otherwise
	}
	return sheet.Numbers(list, 1)
}

// chosen reads a list of names and returns them in the order of all.
func chosen(name, list string, all []string) ([]string, error) {
	given := strings.Split(list, ",")
	for _, g := range given {
		if !slices.Contains(all, g) {
			return nil, fmt.Errorf("%s: %q is none of %s", name, g, strings.Join(all, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !slices.Contains(given, s) }), nil
}

func run(ctx context.Context, p *plan) error {
	rep := &report{plan: p, started: time.Now(), machine: process.MachineAtWork()}
	for _, n := range p.nodes {
		if err := runNodes(ctx, p, n, rep); err != nil {
			return err
		}
	}
	rep.text(os.Stdout)
	if p.img != "" {
		if err := sheet.Draw(p.img, rep.charts()); err != nil {
			return err
		}
	}
	if p.write == "" {
		return nil
	}
	return sheet.Keep(p.write, rep.markdown)
}
