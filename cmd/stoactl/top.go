package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/stoa-kv/stoa/internal/top"
)

func (a *app) topCommand() *cobra.Command {
	t := &monitor{app: a}
	cmd := &cobra.Command{
		Use: "top", Short: "Shows what the servers of a cluster are doing, live", Args: noArgs,
		Long: `Shows the servers, the partitions with their load, the hottest slots and placement prefixes,
and the extensions with their calls and steps, again and again. On a terminal it is one screen:
q ends it, the space bar refreshes it. Otherwise, or with --iterations, reports are printed one
below the other; with --write-out=json each is a line.

Loads are parts of a loop's time, partitions, slots and prefixes those of the leader. Rates are
those of the interval before. Each server is asked for /metrics at its client URLs, or at those of
--metrics-urls, and the leader for its partitions, which are root's to see.`,
		RunE: func(*cobra.Command, []string) error { return t.run() },
	}
	f := cmd.Flags()
	f.IntVarP(&t.iterations, "iterations", "n", 0, "how many reports to print (0: until interrupted)")
	f.DurationVar(&t.interval, "interval", 2*time.Second, "time between two reports")
	f.StringSliceVar(&t.urls, "metrics-urls", nil, "where servers show /metrics, if not at their client URLs")
	return cmd
}

// monitor is one call of top.
type monitor struct {
	app        *app
	iterations int
	interval   time.Duration
	urls       []string
}

// shortest is the shortest interval: loads are decayed over 0.7 s.
const shortest = 100 * time.Millisecond

func (t *monitor) run() error {
	if t.interval < shortest {
		return badArgs("--interval must be at least %v, and is %v", shortest, t.interval)
	}
	if t.iterations < 0 {
		return badArgs("--iterations must not be negative, and is %d", t.iterations)
	}
	if err := t.app.textOrJSON(); err != nil {
		return err
	}
	s, err := t.app.newSampler(t.urls)
	if err != nil {
		return err
	}
	defer s.close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if out, ok := t.app.out.(*os.File); ok && t.iterations == 0 && t.app.o.form == "simple" && term.IsTerminal(int(out.Fd())) {
		return t.live(ctx, s, out)
	}
	return t.print(ctx, s)
}

// print prints reports, each with the rates of the interval before it.
func (t *monitor) print(ctx context.Context, s *sampler) error {
	before, err := s.sample(ctx)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	for n := 0; t.iterations == 0 || n < t.iterations; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(t.interval):
		}
		now, err := s.sample(ctx)
		if err != nil {
			return unlessEnded(ctx, err)
		}
		if err := t.write(top.Compare(before, now), n > 0); err != nil {
			return err
		}
		before = now
	}
	return nil
}

// unlessEnded is nil for the error of a call that a signal ended.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (t *monitor) write(r *top.Report, apart bool) error {
	if t.app.o.form == "json" {
		b, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("showing the report as JSON: %w", err)
		}
		_, err = fmt.Fprintln(t.app.out, string(b))
		return err
	}
	text := ""
	if apart {
		text = "\n"
	}
	for _, l := range r.Screen(0, 0) {
		text += l.Text + "\n"
	}
	_, err := fmt.Fprint(t.app.out, text)
	return err
}

// live shows the latest report on a terminal until q is pressed.
func (t *monitor) live(ctx context.Context, s *sampler, out *os.File) error {
	screen, err := openScreen(os.Stdin, out)
	if err != nil {
		return err
	}
	defer screen.close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	reports, again := make(chan *top.Report), make(chan struct{}, 1)
	go t.watch(ctx, s, reports, again)
	var latest *top.Report
	resized := time.NewTicker(250 * time.Millisecond)
	defer resized.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case latest = <-reports:
			screen.draw(latest)
		case <-resized.C:
			if latest != nil && screen.resized() {
				screen.draw(latest)
			}
		case key := <-screen.keys:
			switch key {
			case 'q', 'Q', interrupt:
				return nil
			case ' ':
				select {
				case again <- struct{}{}:
				default:
				}
			}
		}
	}
}

// watch sends a report at each interval, and when it is asked for one. What fails is in the report.
func (t *monitor) watch(ctx context.Context, s *sampler, reports chan<- *top.Report, again <-chan struct{}) {
	var before *top.Sample
	for {
		now, err := s.sample(ctx)
		if err != nil {
			now = &top.Sample{Time: time.Now(), Trouble: []string{err.Error()}}
		}
		select {
		case reports <- top.Compare(before, now):
		case <-ctx.Done():
			return
		}
		before = now
		select {
		case <-ctx.Done():
			return
		case <-time.After(t.interval):
		case <-again:
		}
	}
}
