package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/etcdctl/v3/ctlv3/command"
)

// TestEtcdctlsCommands: each command of etcdctl's is there, with its flags.
func TestEtcdctlsCommands(t *testing.T) {
	theirs := &cobra.Command{Use: "etcdctl"}
	theirs.AddCommand(
		command.NewGetCommand(), command.NewPutCommand(), command.NewDelCommand(), command.NewTxnCommand(),
		command.NewCompactionCommand(), command.NewAlarmCommand(), command.NewDefragCommand(), command.NewEndpointCommand(),
		command.NewMoveLeaderCommand(), command.NewWatchCommand(), command.NewVersionCommand(), command.NewLeaseCommand(),
		command.NewMemberCommand(), command.NewSnapshotCommand(), command.NewMakeMirrorCommand(), command.NewLockCommand(),
		command.NewElectCommand(), command.NewAuthCommand(), command.NewUserCommand(), command.NewRoleCommand(),
		command.NewCheckCommand(), command.NewCompletionCommand(), command.NewDowngradeCommand(), command.NewOptionsCommand(theirs),
	)
	ours := (&app{environ: map[string]string{}}).root()
	for _, name := range []string{"endpoints", "debug", "write-out", "hex", "dial-timeout", "command-timeout", "keepalive-time", "keepalive-timeout",
		"max-request-bytes", "max-recv-bytes", "insecure-transport", "insecure-discovery", "insecure-skip-tls-verify", "cert", "key", "cacert",
		"auth-jwt-token", "user", "password", "discovery-srv", "discovery-srv-name"} {
		require.NotNil(t, ours.PersistentFlags().Lookup(name), name)
	}
	requireCommands(t, theirs, ours)
}

func requireCommands(t *testing.T, theirs, ours *cobra.Command) {
	theirs.LocalFlags().VisitAll(func(f *pflag.Flag) {
		own := ours.Flag(f.Name)
		switch {
		case own == nil:
			t.Errorf("%s --%s is missing", ours.CommandPath(), f.Name)
		case own.DefValue != f.DefValue || own.Shorthand != f.Shorthand:
			t.Errorf("%s --%s is -%s %q, and etcdctl's -%s %q", ours.CommandPath(), f.Name, own.Shorthand, own.DefValue, f.Shorthand, f.DefValue)
		}
	})
	for _, sub := range theirs.Commands() {
		own, rest, err := ours.Find([]string{sub.Name()})
		if err != nil || own == ours || len(rest) > 0 {
			if !strings.HasPrefix(theirs.Name(), "completion") {
				t.Errorf("%s %s is missing", ours.CommandPath(), sub.Name())
			}
			continue
		}
		for _, alias := range sub.Aliases {
			require.True(t, own.HasAlias(alias), "%s: alias %s", own.CommandPath(), alias)
		}
		requireCommands(t, sub, own)
	}
}
