package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/internal/extension"
)

func (a *app) extensionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "extension <subcommand>", Short: "Extension related commands (stoa only)",
		Long: "Verifies and tries out extensions, and manages and observes those of a cluster. They can\nbe managed with put, get and del under /em/ as well; see docs/extensions.md.",
	}
	cmd.AddCommand(a.extensionVerify(), a.extensionTest(), a.extensionRegister(), a.extensionList(), a.extensionShow(),
		a.extensionLogs(), a.extensionProfile(),
		a.extensionAck(), a.extensionPut("enable", "enabled", "Lets a disabled extension run again"),
		a.extensionPut("disable", "disabled", "Stops an extension from running"),
		a.extensionDelete("unack", "Takes back an acknowledgement", extensionAckKey, "there is no acknowledgement by this client"),
		a.extensionDelete("remove", "Removes an extension", extension.SourceKey, "there is no such extension"))
	return cmd
}

// readFile reads a file, or stdin for "-".
func (a *app) readFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(a.in)
	}
	return os.ReadFile(name)
}

func (a *app) extensionRegister() *cobra.Command {
	return &cobra.Command{
		Use: "register <name> <file|->", Short: "Registers an extension, or replaces it", Args: argsAre(cobra.ExactArgs(2)),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := extension.CheckName(args[0]); err != nil {
				return badArgs("%w", err)
			}
			source, err := a.readFile(args[1])
			if err != nil {
				return err
			}
			return a.putOne(extension.SourceKey(args[0]), string(source))
		},
	}
}

// extensionAckKey is the key whose put acknowledges an extension for its
// client.
func extensionAckKey(name string) []byte { return []byte(extension.Root + name + "/ack") }

func (a *app) extensionAck() *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use: "ack <name>", Short: "Acknowledges another client's extension, so that it handles one's requests", Args: argsAre(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			value := ""
			if once {
				value = extension.Once
			}
			return a.putOne(extensionAckKey(args[0]), value)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "for one request only")
	return cmd
}

// extensionPut is a command that puts a word as the state of an extension.
func (a *app) extensionPut(use, word, short string) *cobra.Command {
	return &cobra.Command{
		Use: use + " <name>", Short: short, Args: argsAre(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error { return a.putOne(extension.StateKey(args[0]), word) },
	}
}

func (a *app) putOne(key []byte, value string) error {
	return a.withClient(func(ctx context.Context, c *clientv3.Client) error {
		r, err := c.Put(ctx, string(key), value)
		if err != nil {
			return err
		}
		return a.show(putView(r))
	})
}

// extensionDelete is a command that deletes one of an extension's keys.
func (a *app) extensionDelete(use, short string, key func(string) []byte, missing string) *cobra.Command {
	return &cobra.Command{
		Use: use + " <name>", Short: short, Args: argsAre(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.withClient(func(ctx context.Context, c *clientv3.Client) error {
				r, err := c.Delete(ctx, string(key(args[0])))
				switch {
				case err != nil:
					return err
				case r.Deleted == 0:
					return fmt.Errorf("extension %q: %w", args[0], errors.New(missing))
				}
				return a.show(view{json: r, simple: func(p *printer) { p.line("OK") }})
			})
		},
	}
}
