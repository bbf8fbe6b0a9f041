package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/etcdctl/v3/ctlv3/command"
)

// etcdctlCommands are etcdctl's own: those that work on stoa as they are. They print to the
// process' outputs, and end it by themselves when they fail.
func (a *app) etcdctlCommands() []*cobra.Command {
	return a.mounted(
		command.NewAlarmCommand(), command.NewCheckCommand(), command.NewCompactionCommand(), command.NewDefragCommand(),
		command.NewDowngradeCommand(), command.NewElectCommand(), command.NewLockCommand(), command.NewMakeMirrorCommand(),
		command.NewMoveLeaderCommand(),
	)
}

func (a *app) mounted(list ...*cobra.Command) []*cobra.Command {
	for _, c := range list {
		c.GroupID = "" // stoactl's help has no groups
		c.Short, _, _ = strings.Cut(c.Short, ". Use `etcdctl")
		c.PersistentPreRunE = a.beforeEtcdctl
	}
	return list
}

// beforeEtcdctl refuses what etcdctl's commands don't know, and lets them find STOACTL_* in the
// environment: they read ETCDCTL_* themselves.
func (a *app) beforeEtcdctl(cmd *cobra.Command, _ []string) error {
	if err := a.checkGlobals(cmd); err != nil {
		return err
	}
	for name, v := range map[string]string{"compose": a.o.compose, "client-id": a.o.client, "lease": a.o.lease} {
		if v != "" {
			return badArgs("%s has no --%s", cmd.CommandPath(), name)
		}
	}
	for name, v := range a.environ {
		if key, ok := strings.CutPrefix(name, "STOACTL_"); ok && v != "" {
			if err := os.Setenv("ETCDCTL_"+key, v); err != nil {
				return err
			}
		}
	}
	return nil
}
