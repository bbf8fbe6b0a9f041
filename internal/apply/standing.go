package apply

import "github.com/stoa-kv/stoa/internal/extension"

// Standing tells how an extension stands now, for those who look from outside.
func (m *Machine) Standing(e *extension.Extension) extension.Standing {
	home := m.home(e)
	x := execution{m: m, parts: home, local: home.First()}
	m.rlock(home)
	defer m.runlock(home)
	return standingOf(view{&x}, e.StateKey())
}
