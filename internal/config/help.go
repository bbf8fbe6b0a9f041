package config

import (
	"fmt"
	"strings"
)

// HelpText describes every flag, in the order of their declaration.
func HelpText() string {
	var b strings.Builder
	b.WriteString(`Usage:

  stoa [flags]                 start a server
  stoa sidecar [flags]         serve etcd's API beside an application (stoa sidecar --help)
  stoa --version               show the version
  stoa --config-file path      take all settings from a YAML file

Every flag can also be given in the environment, as STOA_NAME or ETCD_NAME.
`)
	group := ""
	for _, s := range declare().settings {
		if s.hidden {
			continue
		}
		if s.group != group {
			group = s.group
			fmt.Fprintf(&b, "\n%s:\n", group)
		}
		note := ""
		if s.unused {
			note = " (without effect)"
		}
		fmt.Fprintf(&b, "  --%s '%s'%s\n    \t%s\n", s.name, s.value.String(), note, s.usage)
	}
	return b.String()
}
