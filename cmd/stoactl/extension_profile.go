package main

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/extension"
)

func (a *app) extensionProfile() *cobra.Command {
	var d time.Duration
	cmd := &cobra.Command{
		Use: "profile <name>", Short: "Counts the steps of an extension's calls by source line", Args: argsAre(cobra.ExactArgs(1)),
		Long: `Counts the steps of all calls of an extension on the endpoint that answers (every server
executes every call), for --duration, and prints the source with, for each line, the number
of calls that reached it, their steps on it, and its share of all steps. Meanwhile the calls
take some more time on that server; their results and steps are the same. An extension has
one profile at a time on a server.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if d <= 0 {
				return badArgs("--duration must be positive, and is %v", d)
			}
			if err := a.textOrJSON(); err != nil {
				return err
			}
			return a.profile(args[0], d)
		},
	}
	cmd.Flags().DurationVar(&d, "duration", 10*time.Second, "how long to count, up to 5m")
	return cmd
}

// profile waits for the duration beside the time that a command may take.
func (a *app) profile(name string, d time.Duration) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), a.o.command+d)
	defer cancel()
	r, err := countSteps(ctx, c, name, d)
	if err != nil {
		return c.explain(err)
	}
	if r.GetEnded() != "" {
		fmt.Fprintf(a.errs, "ended after %v: %s\n", time.Duration(r.GetDuration()).Round(time.Millisecond), r.GetEnded())
	}
	p := profiled{
		Name: name, Member: r.GetMemberId(), Revision: r.GetRevision(), Seconds: time.Duration(r.GetDuration()).Seconds(),
		Calls: r.GetCalls(), Lines: []profiledLine{}, source: sourceAt(ctx, c, name, r.GetRevision()),
	}
	for _, l := range r.GetLines() {
		p.add(l.GetLine(), l.GetCalls(), l.GetSteps())
	}
	return a.show(p.view())
}

func countSteps(ctx context.Context, c *connection, name string, d time.Duration) (*stoapb.ExtensionProfileResponse, error) {
	stream, err := stoapb.NewExtensionsClient(c.ActiveConnection()).Profile(ctx,
		&stoapb.ExtensionProfileRequest{Name: name, Duration: int64(d)}, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	return stream.Recv()
}

// sourceAt is the source that was registered at a revision, "" if it can't be read any
// more: the profile has its numbers without it.
func sourceAt(ctx context.Context, c *connection, name string, rev int64) string {
	key := string(extension.SourceKey(name))
	for _, opts := range [][]clientv3.OpOption{nil, {clientv3.WithRev(rev)}} {
		r, err := c.Get(ctx, key, opts...)
		if err == nil && len(r.Kvs) == 1 && r.Kvs[0].ModRevision == rev {
			return string(r.Kvs[0].Value)
		}
	}
	return ""
}

// profiled is the profile of an extension; its JSON form has only the lines that calls
// reached.
type profiled struct {
	Name     string         `json:"name"`
	Member   uint64         `json:"member_id,omitempty"`
	Revision int64          `json:"revision,omitempty"`
	Seconds  float64        `json:"seconds,omitempty"`
	Calls    int64          `json:"calls"`
	Steps    int64          `json:"steps"`
	Lines    []profiledLine `json:"lines"`

	source string
}

type profiledLine struct {
	Line  int64 `json:"line"`
	Calls int64 `json:"calls"`
	Steps int64 `json:"steps"`
}

func (p *profiled) add(line, calls, steps int64) {
	p.Lines = append(p.Lines, profiledLine{line, calls, steps})
	p.Steps += steps
}

func (p *profiled) view() view { return view{json: p, simple: p.list} }

// list prints the source beside the numbers, like pprof -list.
func (p *profiled) list(to *printer) {
	to.printf("%s: %d calls, %d steps\n", p.Name, p.Calls, p.Steps)
	to.printf("%10s %12s %6s\n", "calls", "steps", "share")
	source := strings.Split(strings.TrimSuffix(p.source, "\n"), "\n")
	used := map[int64]profiledLine{}
	last := int64(len(source))
	for _, l := range p.Lines {
		used[l.Line] = l
		last = max(last, l.Line)
	}
	for n := int64(1); n <= last; n++ {
		l, reached := used[n]
		code := ""
		if n <= int64(len(source)) {
			code = printable(source[n-1])
		}
		switch {
		case reached:
			share := 100 * float64(l.Steps) / float64(p.Steps)
			to.line(strings.TrimRight(fmt.Sprintf("%10d %12d %5.1f%% %5d  %s", l.Calls, l.Steps, share, n, code), " "))
		case p.source != "":
			to.line(strings.TrimRight(fmt.Sprintf("%10s %12s %6s %5d  %s", ".", ".", ".", n, code), " "))
		}
	}
}

// printable is a line of source as a terminal may get it.
func printable(line string) string {
	line = strings.ReplaceAll(strings.TrimSuffix(line, "\r"), "\t", "    ")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, line)
}
