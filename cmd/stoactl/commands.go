package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/commands/queue"
	"github.com/stoa-kv/stoa/client/compose"
)

func (a *app) commandsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "commands <subcommand>", Short: "Sends and carries out commands over several clusters of a composition (needs --compose)"}
	cmd.AddCommand(a.commandsSendCommand(), a.commandsRunCommand(), a.commandsStatusCommand())
	return cmd
}

func (a *app) commandsSendCommand() *cobra.Command {
	var set string
	var taken bool
	cmd := &cobra.Command{
		Use: "send [options]", Short: "Sends one command, and waits until all clusters have had it",
		Long: `Reads a command from stdin: puts and deletions of single keys, up to the end or an empty line.

  put /eu/tenants/7 moved
  del /us/tenants/7
`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			ops, err := a.readCommand()
			if err != nil {
				return err
			}
			return a.sendCommand(setsOf([]string{set})[0], ops, taken)
		},
	}
	cmd.Flags().StringVar(&set, "set", "", "the clusters of the queue, as eu,us (default all clusters)")
	cmd.Flags().BoolVar(&taken, "taken", false, "wait only until it is in the queue")
	return cmd
}

// readCommand reads operations up to the end of the input or an empty line.
func (a *app) readCommand() (ops []clientv3.Op, err error) {
	for {
		line, err := a.in.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, invalidInput("reading the command: %w", err)
		}
		if line = strings.TrimSpace(line); line != "" {
			op, bad := parseOp(line)
			if bad != nil {
				return nil, bad
			}
			ops = append(ops, op)
		}
		if line == "" || err != nil {
			return ops, nil
		}
	}
}

func (a *app) sendCommand(set []string, ops []clientv3.Op, taken bool) error {
	c, err := a.composition()
	if err != nil {
		return err
	}
	defer c.Close()
	q, err := c.Commands(set...)
	if err != nil {
		return badArgs("%w", err)
	}
	defer q.Close()
	ctx, cancel := context.WithTimeout(context.Background(), a.o.command+a.o.dial)
	defer cancel()
	f := q.Send(ops...)
	if err := f.Taken(ctx); err != nil {
		return err
	}
	if !taken {
		if err := f.Done(ctx); err != nil {
			return fmt.Errorf("the command is in the queue, but not all clusters are known to have had it: %w", err)
		}
	}
	fmt.Fprintln(a.out, "OK")
	return nil
}

func (a *app) commandsRunCommand() *cobra.Command {
	var sets []string
	var metrics string
	var o compose.CarryOutOptions
	cmd := &cobra.Command{
		Use: "run [options]", Short: "Runs the executors of queues until it is interrupted",
		Long: "Carries out the commands of queues in their clusters.\n" +
			"Any number of processes may run for the same queues: for each, one of them is elected, and another one takes over when that ends.\n" +
			"It is best run next to the first cluster of each set, by name. It can be interrupted or killed at any point.",
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if o.MaxTxnOps < 2 {
				return badArgs("--max-txn-ops=%d: at least 2 are needed", o.MaxTxnOps)
			}
			o.Sets = setsOf(sets)
			return a.runCommands(o, metrics)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&sets, "set", nil, "the clusters of a queue, as eu,us; can be given several times (default the queue of all clusters)")
	f.IntVar(&o.MaxTxnOps, "max-txn-ops", 128, "the clusters' --max-txn-ops")
	f.StringVar(&metrics, "metrics-listen", "", metricsListenUsage)
	return cmd
}

// setsOf are the clusters of each set; of an empty one none, which stands for all.
func setsOf(sets []string) (all [][]string) {
	for _, set := range sets {
		var names []string
		if set != "" {
			names = strings.Split(set, ",")
		}
		all = append(all, names)
	}
	return all
}

func (a *app) runCommands(o compose.CarryOutOptions, listen string) error {
	c, err := a.composition()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	registry := prometheus.NewRegistry()
	metrics := queue.NewMetrics(registry)
	if listen != "" {
		end, err := a.serveMetrics(listen, registry)
		if err != nil {
			return badArgs("--metrics-listen: %w", err)
		}
		defer end()
	}
	o.Observe = func(set []string) queue.Observer { return metrics.Observe(set, a.observeCommands(set)) }
	return c.CarryOut(ctx, o)
}

// observeCommands prints a line for what happens, and of troubles one at intervals.
func (a *app) observeCommands(set []string) queue.Observer {
	called := strings.Join(set, ",")
	var mu sync.Mutex
	failed := map[string]time.Time{}
	line := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(a.errs, "%s: %s\n", called, text)
	}
	trouble := func(cluster string, err error) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(failed[cluster]) < linesEach {
			return
		}
		failed[cluster] = time.Now()
		if cluster == "" {
			cluster = "the queue"
		}
		fmt.Fprintf(a.errs, "%s: %s: trying again: %v\n", called, cluster, err)
	}
	return queue.Observer{
		Waiting: func() { line("waiting for the election") },
		Elected: func() { line("carrying out commands") },
		Failed:  trouble, Retrying: trouble,
	}
}

func (a *app) commandsStatusCommand() *cobra.Command {
	var sets []string
	cmd := &cobra.Command{
		Use: "status", Short: "Prints how far the clusters of a queue are", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := a.composition()
			if err != nil {
				return err
			}
			defer c.Close()
			ctx, cancel := context.WithTimeout(context.Background(), a.o.command+a.o.dial)
			defer cancel()
			names := setsOf(sets)
			if len(names) == 0 {
				names = [][]string{nil}
			}
			var all []queue.Status
			for _, set := range names {
				st, err := c.CommandStatus(ctx, set...)
				if err != nil {
					return err
				}
				all = append(all, st)
			}
			return a.show(commandsStatus(all))
		},
	}
	cmd.Flags().StringArrayVar(&sets, "set", nil, "the clusters of a queue, as eu,us; can be given several times (default the queue of all clusters)")
	return cmd
}

// commandsStatus is what commands status prints: a row for each cluster of each queue.
func commandsStatus(all []queue.Status) view {
	type row struct {
		Set     string `json:"set"`
		Cluster string `json:"cluster"`
		Waiting int64  `json:"waitingBatches"`
		Clients int64  `json:"clients"`
		Done    int64  `json:"done"`
		Mark    int64  `json:"mark"`
		Worker  string `json:"executor"`
	}
	rows := []row{}
	for _, st := range all {
		for i, name := range st.Clusters {
			m := st.Marks[i]
			rows = append(rows, row{strings.Join(st.Clusters, ","), name, st.Entries, st.Clients, st.Done.Entry, m.Entry, m.Owner})
		}
	}
	return view{
		json: rows,
		table: func() (head []string, lines [][]string) {
			for _, r := range rows {
				lines = append(lines, []string{
					r.Set, r.Cluster, strconv.FormatInt(r.Waiting, 10), strconv.FormatInt(r.Clients, 10),
					strconv.FormatInt(r.Done, 10), strconv.FormatInt(r.Mark, 10), r.Worker,
				})
			}
			return []string{"Set", "Cluster", "Waiting", "Clients", "Done", "Mark", "Executor"}, lines
		},
		fields: func(p *printer) {
			for _, r := range rows {
				p.printf("\"Set\" : %q\n\"Cluster\" : %q\n", r.Set, r.Cluster)
				p.line(`"Waiting" :`, r.Waiting)
				p.line(`"Clients" :`, r.Clients)
				p.line(`"Done" :`, r.Done)
				p.line(`"Mark" :`, r.Mark)
				p.printf("\"Executor\" : %q\n", r.Worker)
				p.line("")
			}
		},
	}
}
