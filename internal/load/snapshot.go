package load

import (
	"cmp"
	"slices"

	"github.com/stoa-kv/stoa/internal/placement"
)

// Snapshot is the load at one moment. 1 is a loop that works all the time.
type Snapshot struct {
	Slots [placement.Slots]float64
	Rest  []float64 // by partition: what no slot explains
	Work  []float64 // by partition: the weights of its commands, per second
	Hot   [][]Prefix
}

// Prefix is a placement prefix with its load, which is estimated. Most loaded first.
type Prefix struct {
	Prefix string
	Load   float64
}

// Loops is the load of every partition: that of the slots that a map gives it, and of its rest.
func (s *Snapshot) Loops(where *placement.Map) []float64 {
	loops := append([]float64(nil), s.Rest...)
	for slot, p := range where.Table() {
		loops[p] += s.Slots[slot]
	}
	return loops
}

// Prefixes are the hottest prefix of each slot, of those that the snapshot has.
func (s *Snapshot) Prefixes(where *placement.Map) map[int]string {
	of := map[int]string{}
	for _, list := range s.Hot {
		for _, h := range slices.Backward(list) { // the hottest last
			of[where.Slot([]byte(h.Prefix))] = h.Prefix
		}
	}
	return of
}

// Slot is a slot with its load.
type Slot struct {
	Slot   int
	Load   float64
	Prefix string // the hottest of the slot, if the snapshot has one
}

// Hottest are the most loaded slots of each partition, at most so many of each. Slots without a
// load aren't among them.
func (s *Snapshot) Hottest(most int, where *placement.Map) [][]Slot {
	list := make([][]Slot, len(s.Rest))
	for slot, p := range where.Table() {
		if s.Slots[slot] >= least {
			list[p] = append(list[p], Slot{Slot: slot, Load: s.Slots[slot]})
		}
	}
	prefixes := s.Prefixes(where)
	for p, slots := range list {
		slices.SortFunc(slots, func(a, b Slot) int { return cmp.Or(cmp.Compare(b.Load, a.Load), cmp.Compare(a.Slot, b.Slot)) })
		list[p] = slots[:min(most, len(slots))]
		for i := range list[p] {
			list[p][i].Prefix = prefixes[list[p][i].Slot]
		}
	}
	return list
}

// least is the load below which a slot counts as one without: a decayed load never becomes 0.
const least = 1e-6
