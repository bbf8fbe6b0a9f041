package bootstrap

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// add adds a member, which isn't started yet.
func (w *world) add() {
	m := &machine{id: ID(len(w.machines) + 1), joins: true}
	w.machines = append(w.machines, m)
	w.lists = append(w.lists, append(slices.Clone(w.list()), m))
	w.check()
}

// remove removes a member, if DESIGN.md's assumption about removals holds afterwards.
func (w *world) remove(m *machine) {
	next := slices.DeleteFunc(slices.Clone(w.list()), func(o *machine) bool { return o == m })
	for _, x := range next {
		if x.everIn && !w.wellKnown(x, next) {
			return
		}
	}
	if len(next) > 0 {
		w.lists = append(w.lists, next)
		w.check()
	}
}

// wellKnown reports whether a majority of the others in a list have recorded a member.
func (w *world) wellKnown(x *machine, list []*machine) bool {
	n := 0
	for _, o := range list {
		if o != x && o.disk != nil && o.disk.Admitted && o.disk.Peers[x.id].Data != 0 {
			n++
		}
	}
	return n >= vouchersNeeded(len(list)) || len(list) == 1
}

// The guarantee while members are added and removed, and the others hear of it late.
func TestAMemberThatLostItsDataIsNeverAdmittedAgainWhileMembersChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, rapid.IntRange(1, 5).Draw(t, "members"))
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			m := rapid.SampledFrom(w.machines).Draw(t, "member")
			switch step := rapid.IntRange(0, 21).Draw(t, "step"); {
			case step == 0 && w.bootstrapped:
				w.lose(m)
			case step == 1 && w.bootstrapped && len(w.machines) < 9:
				w.add()
			case step == 2 && w.bootstrapped && slices.Contains(w.list(), m):
				w.remove(m)
			case step == 3:
				w.stop(m)
			case m.reg == nil:
				w.start(m, 2)
				w.hear(m, rapid.IntRange(0, len(w.lists)-1).Draw(t, "list"))
			case step <= 6:
				w.hear(m, rapid.IntRange(0, len(w.lists)-1).Draw(t, "list"))
			default:
				o := rapid.SampledFrom(w.machines).Draw(t, "other")
				if o == m || o.reg == nil {
					continue
				}
				if step <= 9 {
					w.link(m, o)
				} else {
					w.ask(m, o, step > 11)
				}
			}
		}
	})
}
