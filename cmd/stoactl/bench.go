package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client"
)

// benchFlags describe the load.
type benchFlags struct {
	clients, depth  int
	ops             []string
	value, keys     int
	duration        time.Duration
	sessions, unary bool
	level           string
}

// benchOps are the operations that can be measured.
var benchOps = []string{"put", "get"}

var benchLevels = map[string]client.Level{"strict": client.Strict, "causal": client.Causal, "fast": client.Fast}

func (a *app) benchCommand() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use: "bench", Short: "Measures puts and gets, over sessions and call by call", Args: noArgs,
		Long: `Measures puts and gets, over sessions (stoa only) and call by call.

Every client has a directory of its own below /stoactl-bench/, which is deleted at the
end. It keeps as many requests under way as --depth says: over one session, or as so
many unary calls. What is measured is server, network and this program together; it
takes a good part of a core or two itself.`,
		RunE: func(*cobra.Command, []string) error { return a.bench(f) },
	}
	fs := cmd.Flags()
	fs.IntVar(&f.clients, "clients", 16, "clients at work at once")
	fs.IntVar(&f.depth, "depth", 64, "requests of each client that are under way at once")
	fs.StringSliceVar(&f.ops, "ops", benchOps, "what to measure: put, get")
	fs.IntVar(&f.value, "value", 256, "bytes of a value")
	fs.IntVar(&f.keys, "keys", 100, "keys of each client")
	fs.DurationVar(&f.duration, "duration", 5*time.Second, "time that each is measured")
	fs.BoolVar(&f.sessions, "sessions", false, "only over sessions")
	fs.BoolVar(&f.unary, "unary", false, "only call by call")
	fs.StringVar(&f.level, "level", "strict", "level of gets over sessions: strict, causal, fast")
	return cmd
}

func (f *benchFlags) check() error {
	if f.clients < 1 || f.depth < 1 || f.keys < 1 || f.value < 0 || f.duration <= 0 {
		return badArgs("--clients, --depth, --keys and --duration are above 0")
	}
	for _, op := range f.ops {
		if !slices.Contains(benchOps, op) {
			return badFeature("--ops: %q is none of %s", op, strings.Join(benchOps, ", "))
		}
	}
	if _, ok := benchLevels[f.level]; !ok {
		return badFeature("--level: %q is none of strict, causal, fast", f.level)
	}
	if f.sessions == f.unary { // neither means both
		f.sessions, f.unary = true, true
	}
	return nil
}

// bench measures one thing after the other and shows a table.
func (a *app) bench(f benchFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	etcd, err := a.connect()
	if err != nil {
		return err
	}
	defer etcd.Close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b := &benchmark{app: a, f: f, etcd: etcd.Client, root: fmt.Sprintf("/stoactl-bench/%08x/", rand.Uint32()), value: strings.Repeat("x", f.value)}
	defer b.clean()
	if err := b.fill(ctx); err != nil {
		return etcd.explain(err)
	}
	var results []benchResult
	for _, way := range []struct {
		name string
		use  bool
		run  func(context.Context, string, *tally) error
	}{{"session", f.sessions, b.overSessions}, {"unary", f.unary, b.callByCall}} {
		for _, op := range f.ops {
			if !way.use {
				continue
			}
			r, err := b.measure(ctx, op, way.name, way.run)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", op, way.name, err)
			}
			results = append(results, r)
		}
	}
	return a.show(benchView(results))
}

// benchmark is one call of the command.
type benchmark struct {
	app   *app
	f     benchFlags
	etcd  *clientv3.Client
	root  string
	value string
}

// benchResult is one line of the table.
type benchResult struct {
	Op      string        `json:"op"`
	Way     string        `json:"way"`
	Clients int           `json:"clients"`
	Depth   int           `json:"depth"`
	Count   int           `json:"count"`
	Rate    float64       `json:"per_second"`
	P50     time.Duration `json:"p50_ns"`
	P99     time.Duration `json:"p99_ns"`
	Most    time.Duration `json:"max_ns"`
}

func benchView(results []benchResult) view {
	return view{
		json: results,
		simple: func(p *printer) {
			p.printf("%-5s %-8s %8s %6s %10s %10s %10s %10s\n", "op", "way", "clients", "depth", "ops/s", "p50", "p99", "max")
			for _, r := range results {
				c := r.cells()
				p.printf("%-5s %-8s %8s %6s %10s %10s %10s %10s\n", c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7])
			}
		},
		table: func() ([]string, [][]string) {
			var rows [][]string
			for _, r := range results {
				rows = append(rows, r.cells())
			}
			return []string{"op", "way", "clients", "depth", "ops/s", "p50", "p99", "max"}, rows
		},
	}
}

func (r benchResult) cells() []string {
	return []string{r.Op, r.Way, fmt.Sprint(r.Clients), fmt.Sprint(r.Depth), fmt.Sprintf("%.0f", r.Rate), short(r.P50), short(r.P99), short(r.Most)}
}

// short formats a duration for humans.
func short(d time.Duration) string {
	if d > 10*time.Millisecond {
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}

func (b *benchmark) key(client, i int) string { return fmt.Sprintf("%s%d/%d", b.root, client, i) }

// perTxn is the number of operations that every server allows in a transaction.
const perTxn = 100

// fill puts all keys once.
func (b *benchmark) fill(ctx context.Context) error {
	var ops []clientv3.Op
	put := func() error {
		defer func() { ops = ops[:0] }()
		ctx, cancel := context.WithTimeout(ctx, b.app.o.command)
		defer cancel()
		if _, err := b.etcd.Txn(ctx).Then(ops...).Commit(); err != nil {
			return fmt.Errorf("putting the keys: %w", err)
		}
		return nil
	}
	for c := range b.f.clients {
		for i := range b.f.keys {
			if ops = append(ops, clientv3.OpPut(b.key(c, i), b.value)); len(ops) == perTxn {
				if err := put(); err != nil {
					return err
				}
			}
		}
	}
	if len(ops) == 0 {
		return nil
	}
	return put()
}

func (b *benchmark) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), b.app.o.command)
	defer cancel()
	if _, err := b.etcd.Delete(ctx, b.root, clientv3.WithPrefix()); err != nil {
		fmt.Fprintf(b.app.errs, "the keys below %s are left behind: %v\n", b.root, err)
	}
}

// measure runs one line of the table.
func (b *benchmark) measure(ctx context.Context, op, way string, run func(context.Context, string, *tally) error) (benchResult, error) {
	t := &tally{}
	timed, cancel := context.WithTimeout(ctx, b.f.duration)
	defer cancel()
	began := time.Now()
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		showProgress(timed, terminal(b.app.errs), fmt.Sprintf("%s, %-7s", op, way), b.f.duration, &t.count)
	}()
	err := run(timed, op, t)
	took := time.Since(began)
	cancel()
	<-shown
	if err == nil {
		err = ctx.Err() // interrupted
	}
	if err != nil {
		return benchResult{}, err
	}
	return t.result(benchResult{Op: op, Way: way, Clients: b.f.clients, Depth: b.f.depth}, took)
}

// overSessions: every client has a session and waits for the oldest of its requests.
func (b *benchmark) overSessions(ctx context.Context, op string, t *tally) error {
	c := client.Of(b.etcd)
	var all []*client.Session
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), b.app.o.command)
		defer cancel()
		each(len(all), func(i int) error { return all[i].Close(ctx) })
	}()
	for range b.f.clients {
		opening, cancel := context.WithTimeout(ctx, b.app.o.command)
		s, err := c.Session(opening, client.WithLevel(benchLevels[b.f.level]))
		cancel()
		if err != nil {
			return err
		}
		all = append(all, s)
	}
	return each(len(all), func(i int) error { return b.pipeline(ctx, all[i], i, op, t) })
}

// sent is an unanswered request.
type sent struct {
	at   time.Time
	wait func(context.Context) error
}

func (b *benchmark) pipeline(ctx context.Context, s *client.Session, i int, op string, t *tally) error {
	var mine latencies
	defer t.add(&mine)
	ask := func() sent {
		at, key := time.Now(), b.key(i, rand.IntN(b.f.keys))
		if op == "put" {
			f := s.PutAsync(key, b.value)
			return sent{at, func(ctx context.Context) error { _, err := f.Wait(ctx); return err }}
		}
		f := s.GetAsync(key)
		return sent{at, func(ctx context.Context) error { _, err := f.Wait(ctx); return err }}
	}
	ring := make([]sent, b.f.depth)
	for k := range ring {
		ring[k] = ask()
	}
	for k := 0; ; k = (k + 1) % len(ring) {
		if err := ring[k].wait(ctx); err != nil {
			return unlessOver(ctx, err)
		}
		mine = append(mine, time.Since(ring[k].at))
		t.count.Add(1)
		ring[k] = ask()
	}
}

// callByCall: every request in flight is a call of its own, on one connection.
func (b *benchmark) callByCall(ctx context.Context, op string, t *tally) error {
	return each(b.f.clients*b.f.depth, func(i int) error {
		var mine latencies
		defer t.add(&mine)
		for {
			at, key := time.Now(), b.key(i%b.f.clients, rand.IntN(b.f.keys))
			var err error
			if op == "put" {
				_, err = b.etcd.Put(ctx, key, b.value)
			} else {
				_, err = b.etcd.Get(ctx, key)
			}
			if err != nil {
				return unlessOver(ctx, err)
			}
			mine = append(mine, time.Since(at))
			t.count.Add(1)
		}
	})
}

// unlessOver keeps an error that came before the time was over.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// each does something n times at once and waits for all.
func each(n int, do func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err // the others say the same
		}
	}
	return nil
}

type latencies []time.Duration

// tally is the sum of all clients' results.
type tally struct {
	count atomic.Int64
	mu    sync.Mutex
	all   latencies
}

func (t *tally) add(l *latencies) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, *l...)
}

func (t *tally) result(r benchResult, took time.Duration) (benchResult, error) {
	n := len(t.all)
	if n == 0 {
		return r, errors.New("nothing was answered in time")
	}
	slices.Sort(t.all)
	r.Count, r.Rate = n, float64(n)/took.Seconds()
	r.P50, r.P99, r.Most = t.all[n/2], t.all[n*99/100], t.all[n-1]
	return r, nil
}

// terminal is w if it is a terminal, else nil.
func terminal(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return w
		}
	}
	return nil
}

const barWidth = 30

// showProgress draws a bar until ctx ends, and erases it.
func showProgress(ctx context.Context, w io.Writer, what string, length time.Duration, count *atomic.Int64) {
	if w == nil {
		return
	}
	began, tick := time.Now(), time.NewTicker(100*time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fmt.Fprintf(w, "\r%s", progressBar(what, time.Since(began), length, count.Load()))
		case <-ctx.Done():
			fmt.Fprintf(w, "\r%s\r", strings.Repeat(" ", len([]rune(progressBar(what, length, length, count.Load())))+12))
			return
		}
	}
}

func progressBar(what string, past, length time.Duration, count int64) string {
	share := min(float64(past)/float64(length), 1)
	full := int(share * barWidth)
	return fmt.Sprintf("%s [%s%s] %3.0f %% %9.0f/s", what, strings.Repeat("█", full), strings.Repeat("·", barWidth-full), share*100, float64(count)/past.Seconds())
}
