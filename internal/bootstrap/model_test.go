package bootstrap

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"pgregory.net/rapid"
)

// machine is a member with its disk.
type machine struct {
	id   ID
	disk *Record // nil: empty
	reg  *Registry

	introduced bool // another member may have this disk's data ID in its record
	lost       bool // an introduced disk was lost
	everIn     bool // was admitted, with any disk
	joins      bool // isn't an initial member
}

// world is a cluster of machines that start, stop, lose their disks and
// introduce themselves to each other, with every message lost or delivered as
// drawn by rapid.
type world struct {
	t            *rapid.T
	machines     []*machine
	bootstrapped bool         // a quorum has been admitted
	promised     bool         // what DESIGN.md assumes still holds
	lists        [][]*machine // that the cluster has had; the last is the present one
}

func (w *world) list() []*machine { return w.lists[len(w.lists)-1] }
func (w *world) quorum() int      { return len(w.list())/2 + 1 }

// steady counts the members that are admitted and have lost nothing.
func (w *world) steady() (n int) {
	for _, m := range w.list() {
		if m.disk != nil && m.disk.Admitted && !m.lost {
			n++
		}
	}
	return n
}

func members(list []*machine) (all []Member) {
	for _, m := range list {
		all = append(all, Member{ID: m.id, Name: fmt.Sprint("s", m.id)})
	}
	return all
}

func (w *world) start(m *machine, partitions int) {
	m.reg = newRegistry("memory", zap.NewNop(), m.disk, func(rec *Record) error {
		c := rec.clone()
		m.disk = &c
		return nil
	})
	if _, in := m.reg.Record(); in {
		require.NoError(w.t, m.reg.Resume())
	} else {
		list := w.lists[0]
		if m.joins {
			list = w.list()
		}
		require.NoError(w.t, m.reg.Begin(Self{Cluster: 7, Member: m.id, Members: members(list), Partitions: partitions, Existing: m.joins}))
	}
	w.hear(m, len(w.lists)-1)
	w.admit(m)
}

// hear lets a machine that runs know the i-th list.
func (w *world) hear(m *machine, i int) {
	var removed []ID
	for _, o := range w.machines[:len(w.lists[0])] {
		if !slices.Contains(w.lists[i], o) {
			removed = append(removed, o.id)
		}
	}
	require.NoError(w.t, m.reg.SetMembers(idsOf(members(w.lists[i])), removed, 1))
}

func (w *world) stop(m *machine) { m.reg = nil }

func (w *world) lose(m *machine) {
	w.stop(m)
	m.lost = m.lost || m.introduced
	if m.introduced && !w.bootstrapped {
		w.promised = false
	}
	m.disk, m.introduced = nil, false
	w.check()
}

func (w *world) check() {
	w.bootstrapped = w.bootstrapped || w.steady() >= w.quorum()
	if w.bootstrapped && w.steady() < w.quorum() {
		w.promised = false
	}
}

// ask lets one introduce itself to another; got says whether the answer arrives.
func (w *world) ask(from, to *machine, got bool) {
	if _, in := from.reg.Record(); in {
		return
	}
	from.reg.mu.Lock()
	q := from.reg.own(to.id)
	from.reg.mu.Unlock()
	from.introduced = true
	a, err := to.reg.Introduce(q)
	require.NoError(w.t, err)
	w.admit(to)
	if !got {
		return
	}
	to.introduced = true // the other notes it
	_ = from.reg.learn(Member{ID: to.id}, a)
	w.admit(from)
}

// link is a handshake: both are in.
func (w *world) link(from, to *machine) {
	_, one := from.reg.Record()
	_, other := to.reg.Record()
	if !one || !other {
		return
	}
	_ = to.reg.Meet(from.id, from.reg.Mark())
	_ = from.reg.Meet(to.id, to.reg.Mark())
}

func (w *world) admit(m *machine) {
	if m.reg.self.Members == nil {
		return // it was in before it was started
	}
	if _, in := m.reg.Record(); in {
		return
	}
	_, ok, err := m.reg.admit()
	require.NoError(w.t, err)
	if !ok {
		return
	}
	if m.lost && m.everIn && w.promised && w.bootstrapped {
		w.t.Fatalf("member %s has lost its data and is admitted again", m.id)
	}
	m.everIn = true
	w.check()
}

func newWorld(t *rapid.T, size int) *world {
	w := &world{t: t, promised: true}
	for i := range size {
		w.machines = append(w.machines, &machine{id: ID(i + 1)})
	}
	w.lists = [][]*machine{w.machines}
	return w
}

// The guarantee of DESIGN.md: as long as its assumptions hold, no member that
// was admitted and lost its disk is admitted again.
func TestAMemberThatLostItsDataIsNeverAdmittedAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, rapid.IntRange(2, 7).Draw(t, "members"))
		any := rapid.SampledFrom(w.machines)
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			m := any.Draw(t, "member")
			switch step := rapid.IntRange(0, 19).Draw(t, "step"); {
			case step == 0 && w.bootstrapped: // no guarantee before that
				w.lose(m)
			case step <= 2:
				w.stop(m)
			case m.reg == nil:
				w.start(m, 2)
			default:
				o := any.Draw(t, "other")
				if o == m || o.reg == nil {
					continue
				}
				if step <= 5 {
					w.link(m, o)
				} else {
					w.ask(m, o, step > 7)
				}
			}
		}
	})
}

// After any sequence of events without a lost disk: once all are up and
// connected, all are admitted, with one number of partitions.
func TestAllAreAdmittedInTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, rapid.IntRange(1, 7).Draw(t, "members"))
		any := rapid.SampledFrom(w.machines)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			m := any.Draw(t, "member")
			switch step := rapid.IntRange(0, 9).Draw(t, "step"); {
			case step == 0:
				w.stop(m)
			case m.reg == nil:
				w.start(m, 2)
			default:
				if o := any.Draw(t, "other"); o != m && o.reg != nil {
					w.ask(m, o, step > 3)
				}
			}
		}
		for _, m := range w.machines {
			if m.reg == nil {
				partitions := 2
				if w.bootstrapped { // the cluster's number counts
					partitions = rapid.SampledFrom([]int{2, 4}).Draw(t, "partitions")
				}
				w.start(m, partitions)
			}
		}
		for range 3 {
			w.askAround()
		}
		parts := map[int]bool{}
		for _, m := range w.machines {
			rec, in := m.reg.Record()
			require.True(t, in, "member %s is not admitted: %+v", m.id, m.disk)
			parts[rec.Partitions] = true
		}
		require.Len(t, parts, 1)
	})
}

func (w *world) askAround() {
	for _, m := range w.machines {
		for _, o := range w.machines {
			if m != o {
				w.ask(m, o, true)
			}
		}
	}
}

// A majority is enough to begin, and the others may join later.
func TestAMajorityBegins(t *testing.T) {
	for size := 1; size <= 7; size++ {
		rapid.Check(t, func(t *rapid.T) {
			w := newWorld(t, size)
			order := rapid.Permutation(w.machines).Draw(t, "order")
			first := order[:w.quorum()]
			for _, m := range first {
				w.start(m, 2)
			}
			for range 2 {
				for _, m := range first {
					for _, o := range first {
						if m != o {
							w.ask(m, o, true)
						}
					}
				}
			}
			for _, m := range first {
				_, in := m.reg.Record()
				require.True(t, in, "member %s of the first %d of %d", m.id, len(first), size)
			}
			for i, m := range order[w.quorum():] {
				w.start(m, 4) // another number: the cluster's counts
				for _, o := range order[:w.quorum()+i] {
					w.ask(m, o, true)
				}
				rec, in := m.reg.Record()
				require.True(t, in, "late member %s of %d", m.id, size)
				require.Equal(t, 2, rec.Partitions)
			}
		})
	}
}
