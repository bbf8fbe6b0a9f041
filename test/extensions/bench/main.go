// Bench prints what registered extensions cost: with 0, 10, 100, … of them on one server,
// how long a registration takes, a plain put, a call, a put with an event, and a restart.
//
//	go run ./test/extensions/bench -registered 0,10,100,1000,10000
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/test/process"
	"github.com/stoa-kv/stoa/test/sheet"
)

func main() {
	counts := flag.String("registered", "0,10,100,1000,10000", "numbers of extensions, ascending")
	partitions := flag.Int("partitions", 2, "partitions of the server")
	rounds := flag.Int("rounds", 300, "requests of each kind that are measured")
	flag.Parse()
	if err := run(*counts, *partitions, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(counts string, partitions, rounds int) error {
	list, err := sheet.Numbers(counts, 0)
	if err != nil {
		return fmt.Errorf("-registered: %w", err)
	}
	bin, err := process.UnderTest()
	if err != nil {
		return err
	}
	dir, err := process.TempDir("bench-extensions")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	c, err := process.Start(ctx, process.Spec{Binary: bin, Partitions: partitions, Dir: dir})
	if err != nil {
		return err
	}
	defer c.Close()
	b := &bench{cluster: c, ctx: ctx, rounds: rounds}
	if err := b.allow(); err != nil {
		return err
	}
	fmt.Printf("%s; %d partitions; p50 and p99 of %d requests, one after the other\n\n", process.MachineAtWork(), partitions, rounds)
	fmt.Println("| registered | registration | plain put | call | put with an event | restart | resident |")
	fmt.Println("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	for _, n := range list {
		if err := b.row(n); err != nil {
			return fmt.Errorf("with %d extensions: %w", n, err)
		}
	}
	return nil
}

type bench struct {
	cluster *process.Cluster
	ctx     context.Context
	cli     *clientv3.Client
	there   int // extensions
	rounds  int
}

// row measures beside n extensions.
func (b *bench) row(n int) (err error) {
	if b.cli, err = clientv3.New(clientv3.Config{Endpoints: b.cluster.Endpoints(), DialTimeout: 10 * time.Second, Logger: zap.NewNop()}); err != nil {
		return err
	}
	for ; b.there < n; b.there++ {
		if err := b.register(fmt.Sprint("e", b.there), fmt.Sprintf("/e/%d/", b.there)); err != nil {
			return err
		}
	}
	var cells []string
	for _, what := range []func(i int) error{
		func(int) error { return b.register("measured", "/measured/") },
		func(i int) error { return b.put(fmt.Sprintf("/plain/%d", i%10)) },
		func(int) error { return b.put("/measured/call/x") },
		func(i int) error { return b.put(fmt.Sprintf("/measured/new/%d-%d", n, i)) },
	} {
		cell, err := b.measure(what)
		if err != nil {
			return err
		}
		cells = append(cells, cell)
	}
	if _, err := b.cli.Delete(b.ctx, "/em/measured"); err != nil {
		return err
	}
	b.cli.Close()
	restart, err := b.restart()
	if err != nil {
		return err
	}
	resident, err := b.cluster.Servers[0].Resident()
	if err != nil {
		return err
	}
	fmt.Printf("| %d | %s | %s | %s | %s | %v | %d MiB |\n", n, cells[0], cells[1], cells[2], cells[3], restart.Round(time.Millisecond), resident>>20)
	return nil
}

func (b *bench) register(name, scope string) error {
	source := fmt.Sprintf(`return {
		scope = { %[1]q },
		operations = { { op = "put", prefix = "%[1]scall/" } },
		events = { { event = "created", prefix = "%[1]snew/" } },
		put = function(r) local n = tonumber(get(%[1]q .. "n") or "0") + 1; put(%[1]q .. "n", n); return n end,
		event = function(e) put(%[1]q .. "last", e.key) end,
	}`, scope)
	_, err := b.cli.Put(b.ctx, "/em/"+name, source)
	return err
}

func (b *bench) put(key string) error {
	_, err := b.cli.Put(b.ctx, key, "value")
	return err
}

func (b *bench) measure(do func(i int) error) (string, error) {
	took := make([]time.Duration, b.rounds)
	for i := range took {
		began := time.Now()
		if err := do(i); err != nil {
			return "", err
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return fmt.Sprintf("%v, %v", took[len(took)/2].Round(10*time.Microsecond), took[len(took)*99/100].Round(10*time.Microsecond)), nil
}

func (b *bench) restart() (time.Duration, error) {
	s := b.cluster.Servers[0]
	if _, _, err := s.Stop(); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := s.Start(); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	err := s.WaitReady(ctx)
	return time.Since(began), err
}

// allow makes room for more than the defaults do.
func (b *bench) allow() error {
	cli, err := clientv3.New(clientv3.Config{Endpoints: b.cluster.Endpoints(), DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer cli.Close()
	_, err = cli.Put(b.ctx, "/em/.limits", `{"memory_total": 134217728}`)
	return err
}
