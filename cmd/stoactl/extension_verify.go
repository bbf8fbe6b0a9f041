package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stoa-kv/stoa/internal/extension"
)

func (a *app) extensionVerify() *cobra.Command {
	var limits string
	cmd := &cobra.Command{
		Use: "verify <file|->...", Short: "Checks files as a server does that registers them; needs no cluster", Args: argsAre(cobra.MinimumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			l, err := a.limits(limits)
			if err != nil {
				return err
			}
			refused := 0
			for _, file := range args {
				e, size, err := a.compile(file, l)
				if err != nil {
					fmt.Fprintln(a.errs, err)
					refused++
					continue
				}
				if err := a.show(verifiedView(file, e, size, l)); err != nil {
					return err
				}
			}
			if refused > 0 {
				return fmt.Errorf("%d of %d refused", refused, len(args))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&limits, "limits", "", "file with the cluster's limits (the value of /em/.limits); without it the defaults")
	return cmd
}

func (a *app) limits(file string) (extension.Limits, error) {
	if file == "" {
		return extension.Defaults, nil
	}
	value, err := a.readFile(file)
	if err != nil {
		return extension.Limits{}, err
	}
	l, err := extension.Current.Parse(value)
	if err != nil {
		return l, fmt.Errorf("%s: %w", file, err)
	}
	return l, nil
}

// nameOf is the default name of a file's extension.
func nameOf(file string) string {
	name := strings.TrimSuffix(filepath.Base(file), ".lua")
	if extension.CheckName(name) != nil {
		return "extension"
	}
	return name
}

func (a *app) compile(file string, l extension.Limits) (e *extension.Extension, size int, err error) {
	source, err := a.readFile(file)
	if err != nil {
		return nil, 0, err
	}
	e, err = extension.Compile(nameOf(file), source, 0, l)
	return e, len(source), placed(file, err)
}

// placed adds the position in the file to a refusal, as compilers do.
func placed(file string, err error) error {
	var r *extension.Refused
	switch {
	case !errors.As(err, &r):
		return err
	case r.Line == 0:
		return fmt.Errorf("%s: %s", file, r.Reason)
	}
	return fmt.Errorf("%s:%d:%d: %s", file, r.Line, r.Column, r.Reason)
}

func verifiedView(file string, e *extension.Extension, size int, l extension.Limits) view {
	return view{
		json: struct {
			File       string   `json:"file"`
			Name       string   `json:"name"`
			Scope      []string `json:"scope"`
			Operations []string `json:"operations"`
			Events     []string `json:"events"`
			Strict     bool     `json:"strict,omitempty"`
			Size       int      `json:"size"`
			Memory     int64    `json:"memory"`
			Steps      int64    `json:"steps"`
			Bytes      int64    `json:"bytes"`
		}{file, e.Name, scopeOf(e), operationsOf(e), eventsOf(e), e.Strict, size, e.Memory, e.Loading.Steps, e.Loading.Bytes},
		simple: func(p *printer) {
			p.printf("%s: ok\n", file)
			p.printf("  scope       %s\n", orNothing(scopeOf(e)))
			p.printf("  operations  %s\n", orNothing(operationsOf(e)))
			p.printf("  events      %s\n", orNothing(eventsOf(e)))
			if e.Strict {
				p.printf("  strict      yes\n")
			}
			p.printf("  size        %d of %d bytes\n", size, l.Source)
			p.printf("  memory      %d of %d bytes\n", e.Memory, l.Memory)
			p.printf("  loading     %d of %d steps, %d of %d bytes\n", e.Loading.Steps, extension.Loading.Steps, e.Loading.Bytes, extension.Loading.Bytes)
		},
	}
}

func orNothing(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
