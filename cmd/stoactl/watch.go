package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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
			if interactive {
				return a.withWatcher(a.watchLines)
			}
			keys, command, err := a.watchArgs(args, cmd.ArgsLenAtDash())
			if err != nil {
				return err
			}
			key, opts, err := f.options(keys)
			if err != nil {
				return err
			}
			return a.withWatcher(func(ctx context.Context, s store) error {
				next, err := openWatch(ctx, s, key, opts)
				if err != nil {
					return err
				}
				return a.follow(ctx, next, command)
			})
		},
	}
	f.declare(cmd.Flags())
	cmd.Flags().BoolVarP(&interactive, "interactive", "i", false, "Interactive mode: lines of 'watch [options] key' and 'progress'")
	return cmd
}

// withWatcher runs f on what open opens, without a timeout. It waits for an
// unreachable server, with a message on stderr.
func (a *app) withWatcher(f func(context.Context, store) error) error {
	s, err := a.open()
	if err != nil {
		return err
	}
	defer s.Close()
	if c, ok := s.(*connection); ok {
		go func() {
			if !c.ready(a.o.dial) {
				fmt.Fprintf(a.errs, "Warning: no connection to %s yet\n", strings.Join(c.endpoints, ", "))
			}
		}()
	}
	return f(context.Background(), s)
}

// watchArgs tells the keys from the command behind "--", which is at dash, or -1. The
// key may come from the environment instead, as with etcdctl.
func (a *app) watchArgs(args []string, dash int) (keys, command []string, err error) {
	if dash >= 0 {
		if args, command = args[:dash], args[dash:]; len(command) == 0 {
			return nil, nil, badArgs("there is no command behind --")
		}
	}
	key, end := a.variable("WATCH_KEY"), a.variable("WATCH_RANGE_END")
	switch {
	case key == "" && end != "":
		return nil, nil, badArgs("WATCH_RANGE_END is in the environment, but no WATCH_KEY")
	case key == "":
		return args, command, nil
	case len(args) > 0:
		return nil, nil, badArgs("the key is in the environment (WATCH_KEY=%q), and there is %q", key, args[0])
	case end == "":
		return []string{key}, command, nil
	}
	return []string{key, end}, command, nil
}

// options make a watch of keys.
func (f *watchFlags) options(keys []string) (key string, opts []clientv3.OpOption, err error) {
	opts = []clientv3.OpOption{clientv3.WithRev(f.rev)}
	switch {
	case len(keys) == 0 || len(keys) > 2:
		return "", nil, badArgs("watch needs a key and an optional range_end")
	case len(keys) == 2 && f.prefix:
		return "", nil, badArgs("range_end and --prefix are mutually exclusive")
	case len(keys) == 2:
		opts = append(opts, clientv3.WithRange(keys[1]))
	}
	opts = appendIf(opts, f.prefix, clientv3.WithPrefix)
	opts = appendIf(opts, f.prev, clientv3.WithPrevKV)
	opts = appendIf(opts, f.progress, clientv3.WithProgressNotify)
	return keys[0], opts, nil
}

// follow prints events until the server or the user ends the watch.
func (a *app) follow(ctx context.Context, next func() *happening, command []string) error {
	for r := next(); r != nil; r = next() {
		if r.Canceled {
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
		if err != nil {
			return invalidInput("error reading watch request line: %w", err)
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
			if err := a.watchLine(ctx, s, args[1:]); err != nil {
				fmt.Fprintf(a.errs, "Invalid command: %v\n", err)
			}
		default:
			fmt.Fprintf(a.errs, "Invalid command: %s (watch and progress supported)\n", args[0])
		}
	}
}

// watchLine opens one of the watches.
func (a *app) watchLine(ctx context.Context, s store, args []string) error {
	var f watchFlags
	set := pflag.NewFlagSet("watch", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	f.declare(set)
	if err := set.Parse(args); err != nil {
		return err
	}
	keys, command, err := a.watchArgs(set.Args(), set.ArgsLenAtDash())
	if err != nil {
		return err
	}
	key, opts, err := f.options(keys)
	if err != nil {
		return err
	}
	next, err := openWatch(ctx, s, key, opts)
	if err != nil {
		return err
	}
	go func() {
		if err := a.follow(ctx, next, command); err != nil {
			fmt.Fprintln(a.errs, "Error:", err)
		}
	}()
	return nil
}

func watchView(r *happening) view {
	return view{
		json: r,
		protobuf: &pb.WatchResponse{
			Header: r.Header, Events: r.Events, CompactRevision: r.CompactRevision, Canceled: r.Canceled, Created: r.Created,
		},
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
