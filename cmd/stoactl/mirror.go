package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/client/mirror/worker"
)

func (a *app) mirrorCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "mirror <subcommand>", Short: "Keeps the mirrors of a composition up to date (needs --compose)"}
	cmd.AddCommand(a.mirrorRunCommand(), a.mirrorStatusCommand())
	return cmd
}

// mirrorFlags are the flags of mirror run.
type mirrorFlags struct {
	options compose.MirrorOptions
	metrics string
}

func (a *app) mirrorRunCommand() *cobra.Command {
	var o mirrorFlags
	cmd := &cobra.Command{
		Use: "run [options]", Short: "Runs the workers of the mirrors until it is interrupted",
		Long: "Copies the keys of each mirrored route to its mirrors, and then writes there what changes at home.\n" +
			"Any number of processes may run for the same mirrors: for each, one of them is elected, and another one takes over when that ends.\n" +
			"It is best run next to the targets. It can be interrupted or killed at any point.",
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return a.runMirrors(&o) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.options.Targets, "target", nil, "only the mirrors in these clusters (default all)")
	f.BoolVar(&o.options.Overwrite, "overwrite", false, "accept a target that has keys of the prefix already, and replace or delete those that differ from home")
	f.IntVar(&o.options.MaxTxnOps, "max-txn-ops", 128, "the targets' --max-txn-ops")
	f.DurationVar(&o.options.Interval, "interval", 100*time.Millisecond, "how long a mark may stay behind revisions of home that changed no key of the prefix")
	f.StringVar(&o.metrics, "metrics-listen", "", metricsListenUsage)
	return cmd
}

// composition opens the composition of --compose.
func (a *app) composition() (*compose.Client, error) {
	if a.o.compose == "" {
		return nil, badArgs("--compose is missing: the file says which clusters there are")
	}
	s, err := a.open()
	if err != nil {
		return nil, err
	}
	return s.(*compose.Client), nil
}

func (a *app) runMirrors(o *mirrorFlags) error {
	if o.options.MaxTxnOps < 2 {
		return badArgs("--max-txn-ops=%d: at least 2 are needed", o.options.MaxTxnOps)
	}
	if o.options.Interval <= 0 {
		return badArgs("--interval=%v: it must be positive", o.options.Interval)
	}
	c, err := a.composition()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	registry := prometheus.NewRegistry()
	metrics := worker.NewMetrics(registry)
	if o.metrics != "" {
		end, err := a.serveMetrics(o.metrics, registry)
		if err != nil {
			return badArgs("--metrics-listen: %w", err)
		}
		defer end()
	}
	show := &mirrorView{app: a, terminal: a.progressBar("")}
	o.options.Observe = func(m compose.Mirror) worker.Observer {
		return metrics.Observe(m.Prefix, m.Home, m.Target, show.observer(m))
	}
	err = c.Mirror(ctx, o.options)
	show.endLine()
	return err
}

const metricsListenUsage = "serve metrics for Prometheus at this address, host:port, under /metrics"

func (a *app) serveMetrics(address string, registry *prometheus.Registry) (end func(), err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(a.errs, "metrics at http://%s/metrics\n", l.Addr())
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = s.Serve(l) }()
	return func() { _ = s.Close() }, nil
}

func (a *app) mirrorStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Prints how far each mirror is behind its home", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := a.composition()
			if err != nil {
				return err
			}
			defer c.Close()
			ctx, cancel := context.WithTimeout(context.Background(), a.o.command+a.o.dial)
			defer cancel()
			all, failed := c.MirrorStatus(ctx)
			if err := a.show(mirrorStatus(all)); err != nil {
				return err
			}
			return failed
		},
	}
}

// mirrorStatus is what mirror status prints.
func mirrorStatus(all []compose.MirrorStatus) view {
	type row struct {
		Prefix     string  `json:"prefix"`
		Home       string  `json:"home"`
		Target     string  `json:"target"`
		Phase      string  `json:"phase"`
		Usable     bool    `json:"usable"`
		Revision   int64   `json:"revision"`
		Behind     int64   `json:"behindRevisions"`
		LagSeconds float64 `json:"lagSeconds"`
		Worker     string  `json:"worker"`
	}
	rows := []row{}
	for _, m := range all {
		phase := string(m.Mark.Phase)
		if phase == "" {
			phase = "none"
		}
		rows = append(rows, row{m.Prefix, m.Home, m.Target, phase, m.Usable, m.Mark.Revision, m.Behind, m.Lag.Seconds(), m.Mark.Owner})
	}
	return view{
		json: rows,
		table: func() (head []string, lines [][]string) {
			for _, r := range rows {
				lines = append(lines, []string{
					r.Prefix, r.Home, r.Target, r.Phase, strconv.FormatBool(r.Usable), strconv.FormatInt(r.Revision, 10),
					strconv.FormatInt(r.Behind, 10), fmt.Sprintf("%.1fs", r.LagSeconds), r.Worker,
				})
			}
			return []string{"Prefix", "Home", "Target", "Phase", "Usable", "Revision", "Behind", "Lag", "Worker"}, lines
		},
		fields: func(p *printer) {
			for _, r := range rows {
				p.printf("\"Prefix\" : %q\n\"Home\" : %q\n\"Target\" : %q\n\"Phase\" : %q\n", r.Prefix, r.Home, r.Target, r.Phase)
				p.line(`"Usable" :`, r.Usable)
				p.line(`"Revision" :`, r.Revision)
				p.line(`"Behind" :`, r.Behind)
				p.line(`"LagSeconds" :`, r.LagSeconds)
				p.printf("\"Worker\" : %q\n", r.Worker)
				p.line("")
			}
		},
	}
}
