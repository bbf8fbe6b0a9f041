package main

import (
	"github.com/spf13/cobra"

	"github.com/stoa-kv/stoa/internal/version"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Prints the version of stoactl", Args: noArgs,
		Run: func(*cobra.Command, []string) { version.Print(a.out, "stoactl") },
	}
}
