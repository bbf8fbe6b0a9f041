package node

import (
	"time"
)

// ExtensionCall is one run of an extension's handler, on this server: every server
// runs every call.
type ExtensionCall struct {
	Name   string
	Took   time.Duration
	Steps  int64
	Writes int    // keys written
	Failed string // "", "limit", "space", or "script" for everything else
}

// ExtensionStanding is the status of a registered extension.
type ExtensionStanding struct {
	Name     string
	Disabled bool
}

// Extensions are those that are registered, by what this server has applied.
func (n *Node) Extensions() []ExtensionStanding {
	m := n.core.Load().machine
	var list []ExtensionStanding
	for _, e := range m.Extensions().All() {
		list = append(list, ExtensionStanding{e.Name, m.Standing(e).Disabled})
	}
	return list
}
