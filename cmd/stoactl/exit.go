package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// exit is an error with a status of its own; others exit with 1.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string { return e.err.Error() }
func (e *exit) Unwrap() error { return e.err }

// The statuses of etcdctl.
const (
	exitBadConnection = 2
	exitInvalidInput  = 3
	exitBadFeature    = 4 // unknown value of a flag
	exitInterrupted   = 5
	exitBadArgs       = 128
)

func badArgs(format string, args ...any) error {
	return &exit{exitBadArgs, fmt.Errorf(format, args...)}
}

func invalidInput(format string, args ...any) error {
	return &exit{exitInvalidInput, fmt.Errorf(format, args...)}
}

func badFeature(format string, args ...any) error {
	return &exit{exitBadFeature, fmt.Errorf(format, args...)}
}

// badConnection is etcdctl's exit status for a failed command on leases.
func badConnection(err error) error { return &exit{exitBadConnection, err} }

// argsAre refuses a wrong number of arguments with the status for that.
func argsAre(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return badArgs("%w; usage: %s", err, cmd.UseLine())
		}
		return nil
	}
}

// noArgs is for commands that take none.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return badArgs("%s takes no arguments, but there is %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// refuseUnknown makes commands that have subcommands fail on others. Without
// arguments they show their help.
func refuseUnknown(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		refuseUnknown(sub)
	}
	if cmd.HasParent() && cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args = cobra.NoArgs
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
}
