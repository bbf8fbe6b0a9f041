package apply

import (
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/placement"
)

// Standing returns the current standing of an extension, for status and metrics.
func (m *Machine) Standing(e *extension.Extension) extension.Standing {
	home := m.Placement().Partition(e.OwnerKey())
	x := execution{m: m, parts: placement.Of(home), local: home}
	m.rlock(x.parts)
	defer m.runlock(x.parts)
	return standingOf(view{&x}, e.StateKey())
}
