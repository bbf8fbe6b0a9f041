// Big migrates many keys and leases from one server to another, of etcd and stoa, while the
// source is written and compacted and the migrator is killed, and compares what both have
// at the end, itself. It prints the times as a table in Markdown.
//
//	go run ./test/migrate/big -keys 1000000 -leases 10000 -rate 1000 -kills 5
//	go run ./test/migrate/big -from stoa -to etcd
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/test/migrate"
	"github.com/stoa-kv/stoa/test/process"
)

type options struct {
	from, to   string
	partitions int
	shape      migrate.Shape
	rate       int
	kills      int
	compact    time.Duration
	quiet      time.Duration
	show       bool
}

func main() {
	var o options
	flag.StringVar(&o.from, "from", "etcd", "source: etcd or stoa")
	flag.StringVar(&o.to, "to", "stoa", "target: etcd or stoa")
	flag.IntVar(&o.partitions, "partitions", 4, "partitions of stoa")
	flag.IntVar(&o.shape.Keys, "keys", 1_000_000, "keys without lease")
	flag.IntVar(&o.shape.Leases, "leases", 10_000, "leases")
	flag.IntVar(&o.shape.Value, "value", 256, "bytes of a value")
	flag.IntVar(&o.rate, "rate", 1000, "writes a second at the source")
	flag.IntVar(&o.kills, "kills", 5, "how often the migrator is killed and started again")
	flag.DurationVar(&o.compact, "compact", 30*time.Second, "the source is compacted at this interval")
	flag.DurationVar(&o.quiet, "quiet", 2*time.Second, "--quiet-time")
	flag.BoolVar(&o.show, "show", false, "show what the migrator says")
	flag.Parse()
	o.shape.TTL = 3600
	dir, err := os.MkdirTemp("", "stoa-migrate-")
	if err == nil {
		err = errors.Join(run(dir, &o), os.RemoveAll(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "migrate:", err)
		os.Exit(1)
	}
}

type trial struct {
	o              *options
	from, to       *process.Server
	source, target *clientv3.Client
	rows           [][2]string
	said           string
}

func run(dir string, o *options) error {
	t := &trial{o: o}
	for _, side := range []struct {
		name, binary string
		server       **process.Server
		client       **clientv3.Client
	}{{"from", o.from, &t.from, &t.source}, {"to", o.to, &t.to, &t.target}} {
		c, err := start(filepath.Join(dir, side.name), side.binary, o.partitions)
		if err != nil {
			return err
		}
		defer c.Close()
		*side.server = c.Servers[0]
		if *side.client, err = migrate.Connect(c.Servers[0]); err != nil {
			return err
		}
		defer (*side.client).Close()
	}
	return t.run()
}

func start(dir, binary string, partitions int) (*process.Cluster, error) {
	bin, err := process.Choose(binary)
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	c, err := process.New(process.Spec{Binary: bin, Partitions: partitions, Dir: dir, Args: []string{"--quota-backend-bytes=8589934592"}})
	if err != nil {
		return nil, err
	}
	return c, c.Start(context.Background())
}

func (t *trial) row(what string, took time.Duration) {
	t.rows = append(t.rows, [2]string{what, fmt.Sprintf("%.1f s", took.Seconds())})
	fmt.Fprintf(os.Stderr, "%s: %.1f s\n", what, took.Seconds())
}

func (t *trial) run() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	began := time.Now()
	if err := migrate.Fill(ctx, t.source, t.o.shape); err != nil {
		return err
	}
	t.row("the source is filled", time.Since(began))
	w := migrate.StartWriter(t.source, t.o.shape, t.o.rate)
	compacted := make(chan error, 1)
	go func() { compacted <- migrate.Compactor(ctx, t.source, t.o.compact) }()
	began = time.Now()
	if err := t.kill(); err != nil {
		return err
	}
	tool, err := migrate.Start(t.from, t.to)
	if err != nil {
		return err
	}
	defer tool.Kill()
	if err := t.await(tool, "Ready to cut over"); err != nil {
		return err
	}
	took := time.Since(began)
	t.row(fmt.Sprintf("copied and compared, with %d kills, at %.0f writes/s", t.o.kills, float64(w.Written.Load())/took.Seconds()), took)
	over, err := migrate.Start(t.from, t.to, "--cut-over", "--quiet-time="+t.o.quiet.String())
	if err != nil {
		return err
	}
	defer over.Kill()
	if err := t.await(over, "Equal at revision", "Not compared yet"); err != nil {
		return err
	}
	if err := w.Stop(); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	began = time.Now()
	if code, err := over.Wait(time.Hour); err != nil || code != 0 {
		return errors.Join(err, fmt.Errorf("status %d: %s", code, over.Said()))
	}
	t.row(fmt.Sprintf("from the last write to the end, of which %s are --quiet-time", t.o.quiet), time.Since(began))
	t.said = over.Said()
	cancel()
	if err := <-compacted; err != nil {
		return err
	}
	return t.compare()
}

// kill starts migrators and kills them at random points.
func (t *trial) kill() error {
	for range t.o.kills {
		tool, err := migrate.Start(t.from, t.to)
		if err != nil {
			return err
		}
		time.Sleep(time.Duration(rand.Int64N(int64(15 * time.Second))))
		tool.Kill()
		if t.o.show {
			fmt.Fprintf(os.Stderr, "killed:\n%s", tool.Said())
		}
	}
	return nil
}

func (t *trial) await(tool *migrate.Tool, texts ...string) error {
	for range time.Tick(20 * time.Millisecond) {
		said := tool.Said()
		if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(said, text) }) {
			if t.o.show {
				fmt.Fprint(os.Stderr, said)
			}
			return nil
		}
		if !tool.Running() {
			return fmt.Errorf("stoactl migrate has ended: %s", said)
		}
	}
	return nil
}

// compare reads both sides without the code that migrated them.
func (t *trial) compare() error {
	source, err := migrate.Read(context.Background(), t.source)
	if err != nil {
		return err
	}
	target, err := migrate.Read(context.Background(), t.target)
	if err != nil {
		return err
	}
	if list := migrate.Differences(source, target); len(list) > 0 {
		return fmt.Errorf("source and target differ:\n%s", strings.Join(list, "\n"))
	}
	fmt.Printf("| %s to %s | time |\n| --- | --- |\n", t.o.from, t.o.to)
	for _, r := range t.rows {
		fmt.Printf("| %s | %s |\n", r[0], r[1])
	}
	fmt.Printf("\n%s%d keys and %d leases are equal\n", t.said, len(source.Keys), len(source.Leases))
	return nil
}
