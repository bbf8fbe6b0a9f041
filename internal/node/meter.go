package node

import (
	"time"

	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
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

// meter implements apply.Meter.
type meter struct {
	began time.Time
	tell  func(ExtensionCall)
}

func (m meter) Now() int64 { return int64(time.Since(m.began)) }

func (m meter) Called(name string, nanoseconds int64, out *extension.Outcome, err error) {
	c := ExtensionCall{Name: name, Took: time.Duration(nanoseconds), Steps: out.Usage.Steps}
	switch fault.CodeOf(err) {
	case 0:
		c.Writes = len(out.Writes)
	case fault.ExtensionLimit.Code():
		c.Failed = "limit"
	case fault.NoSpace.Code():
		c.Failed = "space"
	default:
		c.Failed = "script"
	}
	m.tell(c)
}

// ExtensionStanding is how a registered extension stands.
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
