package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/rehearsal"
)

// rehearseFlags are those of extension test.
type rehearseFlags struct {
	state, limits, script, expect, name, client string
	requests                                    []string
	usage, keys, profile                        bool
}

func (a *app) extensionTest() *cobra.Command {
	var f rehearseFlags
	cmd := &cobra.Command{
		Use: "test <file|->...", Short: "Tries out extensions with given keys and requests; needs no cluster", Args: argsAre(cobra.MinimumNArgs(1)),
		Long: `Registers the files' extensions, under the names of the files, with a state machine as
servers have it, and carries out requests one after the other. Prints for each what it is
answered with, which handlers ran and what they used, what changed, and what open watches
were told. All of it is the same at every run.

A request is what one would type after stoactl: get, put, del, txn (its parts in further
lines, indented) or watch [--prefix], with --client NAME and --lease ID in front of it. Two
more are grant LEASE and expire LEASE, since there is no clock; a lease that --lease in
front of a request, or the file of keys, names is granted by itself.

Below a request, lines of "= WORD TEXT" say what is expected of it: a line of that word
and text among those that are printed for it, or "= error" with a part of the error's
text. What is expected and doesn't come is an error, and so is a request that fails, or
a handler that runs because of it, unless that is expected. --expect compares all of the
output instead, failures included.`,
		RunE: func(_ *cobra.Command, args []string) error { return a.rehearse(&f, args) },
	}
	s := cmd.Flags()
	s.StringVar(&f.state, "state", "", "file of keys that are there: lines of KEY VALUE [--lease ID]")
	s.StringArrayVarP(&f.requests, "request", "r", nil, "a request; may be given several times")
	s.StringVar(&f.script, "script", "", "file of requests, one to a line; carried out before those of --request")
	s.StringVar(&f.client, "client", "", "the client that registers, and that of requests without a --client of their own (default: --client-id)")
	s.StringVar(&f.limits, "limits", "", "file with the cluster's limits (the value of /em/.limits)")
	s.StringVar(&f.name, "name", "", "name of the extension, if there is one file")
	s.StringVar(&f.expect, "expect", "", "file that the output must equal; nothing is printed if it does")
	s.BoolVar(&f.usage, "usage", true, "print steps, bytes and operations; a new version of stoa may count differently")
	s.BoolVar(&f.keys, "keys", false, "print all keys at the end")
	s.BoolVar(&f.profile, "profile", false, "print at the end the steps of all calls by source line, as extension profile does")
	return cmd
}

func (a *app) rehearse(f *rehearseFlags, files []string) error {
	as, err := a.rehearsedCaller(f.client)
	if err != nil {
		return err
	}
	requests, err := a.script(f, as)
	if err != nil {
		return err
	}
	r, sources, err := a.prepare(f, as, files)
	if err != nil {
		return err
	}
	if f.profile {
		r.Profiled()
	}
	var out bytes.Buffer
	to := reporter{printer: &printer{&out, a.o.hex}, usage: f.usage}
	var wrong []string
	for _, s := range requests {
		if err := grantMissing(r, s.caller.Lease); err != nil {
			return err
		}
		wrong = append(wrong, to.carryOut(r, s, f.expect != "")...)
	}
	if f.keys {
		to.keys(r)
	}
	if f.profile {
		to.profiles(r, sources)
	}
	err = a.compare(f.expect, out.String())
	if len(wrong) > 0 {
		err = errors.Join(err, fmt.Errorf("not as expected:\n%s", strings.Join(wrong, "\n")))
	}
	if f.expect != "" && err == nil {
		return nil
	}
	if _, err := a.out.Write(out.Bytes()); err != nil {
		return err
	}
	return err
}

// carryOut carries out and reports one request, and returns its unexpected
// results.
func (p *reporter) carryOut(r *rehearsal.Rehearsal, s *scripted, tolerant bool) []string {
	var report *rehearsal.Report
	if w, ok := s.req.(*pb.WatchCreateRequest); ok {
		report = r.Watch(w, s.caller)
	} else {
		report = r.Do(s.req, s.caller)
	}
	p.request(s)
	p.report(r, report)
	return s.disappointed(p.items, report, tolerant)
}

func (a *app) rehearsedCaller(client string) (c rehearsal.Caller, err error) {
	if c.Client = client; client == "" {
		c.Client = a.o.client
	}
	if a.o.lease != "" {
		c.Lease, err = leaseNamed(a.o.lease)
	}
	return c, err
}

// script reads all requests.
func (a *app) script(f *rehearseFlags, as rehearsal.Caller) (all []*scripted, err error) {
	if f.script != "" {
		text, err := a.readFile(f.script)
		if err != nil {
			return nil, err
		}
		if all, err = readScript(string(text), f.script, as); err != nil {
			return nil, fmt.Errorf("%s: %w", f.script, err)
		}
	}
	for _, text := range f.requests {
		more, err := readScript(text, "--request", as)
		if err != nil {
			return nil, fmt.Errorf("--request: %w", err)
		}
		all = append(all, more...)
	}
	return all, nil
}

// named is the source of an extension.
type named struct{ name, source string }

// prepare sets limits and keys, and registers the extensions: in this order, so
// that no extension handles the initial keys.
func (a *app) prepare(f *rehearseFlags, as rehearsal.Caller, files []string) (*rehearsal.Rehearsal, []named, error) {
	r, err := a.initial(f, as)
	if err != nil {
		return nil, nil, err
	}
	var sources []named
	for _, file := range files {
		source, err := a.readFile(file)
		if err != nil {
			return nil, nil, err
		}
		name := nameOf(file)
		if f.name != "" && len(files) == 1 {
			name = f.name
		}
		if err := r.Register(name, source, as); err != nil {
			return nil, nil, placed(file, err)
		}
		sources = append(sources, named{name, string(source)})
	}
	return r, sources, nil
}

// initial sets limits and keys.
func (a *app) initial(f *rehearseFlags, as rehearsal.Caller) (*rehearsal.Rehearsal, error) {
	r := rehearsal.New()
	if f.limits != "" {
		value, err := a.readFile(f.limits)
		if err != nil {
			return nil, err
		}
		if err := r.Do(&pb.PutRequest{Key: []byte(extension.LimitsKey), Value: value}, as).Err; err != nil {
			return nil, fmt.Errorf("%s: %w", f.limits, err)
		}
	}
	if f.state != "" {
		text, err := a.readFile(f.state)
		if err != nil {
			return nil, err
		}
		if err := setState(r, string(text), as); err != nil {
			return nil, fmt.Errorf("%s: %w", f.state, err)
		}
	}
	return r, nil
}

func setState(r *rehearsal.Rehearsal, text string, as rehearsal.Caller) error {
	puts, err := readState(text)
	if err != nil {
		return err
	}
	for _, p := range puts {
		if err := grantMissing(r, p.GetLease()); err != nil {
			return err
		}
		if err := r.Do(p, as).Err; err != nil {
			return fmt.Errorf("%s: %w", p.GetKey(), err)
		}
	}
	return nil
}

func grantMissing(r *rehearsal.Rehearsal, lease int64) error {
	if lease == 0 || r.HasLease(lease) {
		return nil
	}
	return r.Do(&pb.LeaseGrantRequest{ID: lease, TTL: grantTTL}, rehearsal.Caller{}).Err
}

// compare compares the output with a file, and reports the first line that
// differs.
func (a *app) compare(file, out string) error {
	if file == "" {
		return nil
	}
	want, err := a.readFile(file)
	if err != nil {
		return err
	}
	wanted, got := strings.Split(string(want), "\n"), strings.Split(out, "\n")
	for i := range max(len(wanted), len(got)) {
		w, g := lineOf(wanted, i), lineOf(got, i)
		if w != g {
			return fmt.Errorf("%s:%d: want %s, got %s", file, i+1, w, g)
		}
	}
	return nil
}

// lineOf is line i for an error; a file's last line is what its last newline ends.
func lineOf(lines []string, i int) string {
	if i >= len(lines) || i == len(lines)-1 && lines[i] == "" {
		return "the end"
	}
	return fmt.Sprintf("%q", lines[i])
}
