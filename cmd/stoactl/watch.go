package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
)

type watchFlags struct {
	prefix, prev, progress bool
	rev                    int64
}

func (f *watchFlags) declare(s *pflag.FlagSet) {
	s.BoolVar(&f.prefix, "prefix", false, "Watch on a prefix if prefix is set")
	s.Int64Var(&f.rev, "rev", 0, "Revision to start watching")
	s.BoolVar(&f.prev, "prev-kv", false, "get the previous key-value pair before the event happens")
	s.BoolVar(&f.progress, "progress-notify", false, "get periodic watch progress notification from server")
}

func (a *app) watchCommand() *cobra.Command {
	var f watchFlags
	var interactive bool
	cmd := &cobra.Command{
		Use:   "watch [options] [key or prefix] [range_end] [--] [exec-command arg1 arg2 ...]",
		Short: "Watches events stream on keys or prefixes",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
			defer cancel()
			s, err := a.open()
			if err != nil {
				return err
			}
			defer s.Close()
			if interactive {
				return a.watchLines(ctx, s)
			}
			var command []string
			if dash := cmd.ArgsLenAtDash(); dash >= 0 {
				args, command = args[:dash], args[dash:]
			}
			next, err := f.open(ctx, s, withEnvironment(args))
			if err != nil {
				return err
			}
			return a.follow(ctx, next, command)
		},
	}
	f.declare(cmd.Flags())
	cmd.Flags().BoolVarP(&interactive, "interactive", "i", false, "Interactive mode: lines of 'watch [options] key' and 'progress'")
	return cmd
}

// withEnvironment takes the key from the environment when there is none, as
// etcdctl does.
func withEnvironment(args []string) []string {
	key := os.Getenv("ETCDCTL_WATCH_KEY")
	if len(args) > 0 || key == "" {
		return args
	}
	args = []string{key}
	if end := os.Getenv("ETCDCTL_WATCH_RANGE_END"); end != "" {
		args = append(args, end)
	}
	return args
}

func (f *watchFlags) open(ctx context.Context, s store, args []string) (func() *happening, error) {
	opts := []clientv3.OpOption{clientv3.WithRev(f.rev)}
	switch {
	case len(args) == 0 || len(args) > 2:
		return nil, badArgs("watch needs a key and an optional range_end")
	case len(args) == 2 && f.prefix:
		return nil, badArgs("range_end and --prefix are mutually exclusive")
	case len(args) == 2:
		opts = append(opts, clientv3.WithRange(args[1]))
	}
	opts = appendIf(opts, f.prefix, clientv3.WithPrefix)
	opts = appendIf(opts, f.prev, clientv3.WithPrevKV)
	opts = appendIf(opts, f.progress, clientv3.WithProgressNotify)
	return openWatch(ctx, s, args[0], opts)
}

// follow shows what happens until the server ends the watch, or the user does.
func (a *app) follow(ctx context.Context, next func() *happening, command []string) error {
	for r := next(); r != nil; r = next() {
		if r.Canceled && ctx.Err() == nil {
			fmt.Fprintf(a.errs, "watch was canceled (%v)\n", r.err)
		}
		if r.IsProgressNotify() {
			fmt.Fprintf(a.out, "progress notify: %d\n", r.Header.GetRevision())
		}
		if err := a.show(watchView(r)); err != nil {
			return err
		}
		if len(command) == 0 {
			continue
		}
		for _, ev := range r.Events {
			if err := a.runFor(ctx, command, r.Header.GetRevision(), ev); err != nil {
				return err
			}
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return &exit{exitInterrupted, errors.New("watch is canceled by the server")}
}

func (a *app) runFor(ctx context.Context, command []string, rev int64, ev *clientv3.Event) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(),
		fmt.Sprintf("ETCD_WATCH_REVISION=%d", rev),
		fmt.Sprintf("ETCD_WATCH_EVENT_TYPE=%q", ev.Type.String()),
		fmt.Sprintf("ETCD_WATCH_KEY=%q", ev.Kv.Key),
		fmt.Sprintf("ETCD_WATCH_VALUE=%q", ev.Kv.Value))
	cmd.Stdout, cmd.Stderr = a.out, a.errs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("command %q: %w", command, err)
	}
	return nil
}

// watchLines reads watches from stdin, each with its own flags.
func (a *app) watchLines(ctx context.Context, s store) error {
	for {
		line, err := a.in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return &exit{exitInvalidInput, fmt.Errorf("error reading watch request line: %w", err)}
		}
		args, err := words(line)
		switch {
		case err != nil || len(args) == 0:
			fmt.Fprintf(a.errs, "Invalid command: %s", line)
		case args[0] == "progress":
			if err := s.RequestProgress(clientv3.WithRequireLeader(ctx)); err != nil {
				return err
			}
		case args[0] == "watch":
			var f watchFlags
			set := pflag.NewFlagSet("watch", pflag.ContinueOnError)
			set.SetOutput(io.Discard)
			f.declare(set)
			err := set.Parse(args[1:])
			var next func() *happening
			if err == nil {
				next, err = f.open(ctx, s, withEnvironment(set.Args()))
			}
			if err != nil {
				fmt.Fprintf(a.errs, "Invalid command: %v\n", err)
				continue
			}
			go a.follow(ctx, next, nil)
		default:
			fmt.Fprintf(a.errs, "Invalid command: %s (watch and progress supported)\n", args[0])
		}
	}
}

func watchView(r *happening) view {
	return view{
		json: r,
		simple: func(p *printer) {
			for _, ev := range r.Events {
				p.line(ev.Type)
				if ev.PrevKv != nil {
					p.kv(ev.PrevKv, false)
				}
				p.kv(ev.Kv, false)
			}
		},
		fields: func(p *printer) {
			if r.Cluster != "" {
				p.printf("\"Cluster\" : %q\n", r.Cluster)
			}
			p.header(r.Header)
			for _, ev := range r.Events {
				p.line(`"Type" :`, ev.Type)
				if ev.PrevKv != nil {
					p.fieldsKV("Prev", ev.PrevKv)
				}
				p.fieldsKV("", ev.Kv)
			}
		},
	}
}
