package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

func (a *app) extensionLogs() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use: "logs <name>", Short: "Prints what an extension's handlers wrote with log, and why calls failed", Args: argsAre(cobra.ExactArgs(1)),
		Long: `Prints the latest calls of an extension that wrote lines with log(…), or failed, as the
endpoint that answers has executed them: every server executes every call. Each line begins
with the time on that server, the revision of the call, the handler and its key. Servers keep
up to 1,000 lines of each extension, in memory.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := a.textOrJSON(); err != nil {
				return err
			}
			print := func(ctx context.Context, c *clientv3.Client) error { return a.printLogs(ctx, c, args[0], follow) }
			if !follow {
				return a.withClient(print)
			}
			return a.withWatcher(func(ctx context.Context, s store) error {
				c, ok := s.(*connection)
				if !ok {
					return badArgs("--compose is for get, put, del, txn, watch and lease")
				}
				return c.explain(print(ctx, c.Client))
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with the calls to come")
	return cmd
}

// textOrJSON refuses other forms before anything is waited for.
func (a *app) textOrJSON() error {
	if a.o.form != "simple" && a.o.form != "json" {
		return badFeature("--write-out=%s is not supported here", a.o.form)
	}
	return nil
}

func (a *app) printLogs(ctx context.Context, c *clientv3.Client, name string, follow bool) error {
	stream, err := stoapb.NewExtensionsClient(c.ActiveConnection()).Logs(ctx,
		&stoapb.ExtensionLogsRequest{Name: name, Follow: follow}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if r.GetMissed() > 0 {
			fmt.Fprintf(a.errs, "%d earlier calls were dropped\n", r.GetMissed())
		}
		for _, call := range r.GetCalls() {
			if err := a.show(callView(r.GetMemberId(), call)); err != nil {
				return err
			}
		}
	}
}

// loggedCall is the JSON form of a call.
type loggedCall struct {
	Member   uint64    `json:"member_id"`
	Time     time.Time `json:"time"`
	Revision int64     `json:"revision"`
	Handler  string    `json:"handler,omitempty"`
	Key      string    `json:"key,omitempty"`
	Lines    []string  `json:"lines,omitempty"`
	Error    string    `json:"error,omitempty"`
	Undone   bool      `json:"undone,omitempty"`
}

func callView(member uint64, c *stoapb.ExtensionCall) view {
	at := time.Unix(0, c.GetTime()).UTC()
	return view{
		json: loggedCall{member, at, c.GetRevision(), c.GetHandler(), c.GetKey(), c.GetLines(), c.GetError(), c.GetUndone()},
		simple: func(p *printer) {
			begin := at.Format("2006-01-02T15:04:05.000Z") + fmt.Sprintf(" rev %d", c.GetRevision())
			if c.GetHandler() != "" {
				begin = strings.Join([]string{begin, c.GetHandler(), text([]byte(c.GetKey()))}, " ")
			}
			for _, line := range c.GetLines() {
				p.line(begin + ": " + line)
			}
			switch {
			case c.GetUndone():
				p.line(begin + " undone: " + c.GetError())
			case c.GetError() != "":
				p.line(begin + " failed: " + c.GetError())
			}
		},
	}
}
