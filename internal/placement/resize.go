package placement

import "fmt"

// Resized is the map with another number of partitions, its keys placed at once. Slots move
// only as far as it takes: those of partitions that go, and so many of the others as it takes
// to even their numbers out. What a pin holds stays, but for those in partitions that go, which
// are dealt out as the others are. A transit is over.
func (m *Map) Resized(partitions int) *Map {
	if partitions < 1 || partitions > MaxPartitions {
		panic(fmt.Sprintf("placement: %d partitions, want 1 to %d", partitions, MaxPartitions))
	}
	m = m.Settled()
	slots, held := m.slots, m.Held()
	have := make([]int, partitions)
	for _, p := range m.slots {
		if int(p) < partitions {
			have[p]++
		}
	}
	for s, p := range m.slots {
		gone := int(p) >= partitions
		if !gone && (held[s] != "" || have[p] <= share(int(p), partitions)) {
			continue
		}
		to := fewest(have)
		if !gone {
			if have[p]-have[to] <= 1 {
				continue
			}
			have[p]--
		}
		have[to]++
		slots[s] = uint8(to)
	}
	return (&Map{partitions: partitions, slots: m.slots, rules: m.rules}).withSlots(slots)
}

// Over is the map over another number of partitions, with every key where it is. There have to be
// all that have slots now (see Within), and no transit.
func (m *Map) Over(partitions int) *Map {
	if m.Transit() != nil || partitions > MaxPartitions || !m.Within(partitions) {
		panic(fmt.Sprintf("placement: a map of %d partitions can't be one over %d", m.partitions, partitions))
	}
	return &Map{partitions: partitions, slots: m.slots, rules: m.rules}
}

// Within tells whether the first of the partitions have all slots; in transit, will have.
func (m *Map) Within(partitions int) bool {
	for _, p := range m.slots {
		if int(p) >= partitions {
			return false
		}
	}
	return true
}

// share is how many slots a partition has if they are even.
func share(p, partitions int) int {
	if p < Slots%partitions {
		return Slots/partitions + 1
	}
	return Slots / partitions
}

// fewest is the first partition with the fewest slots.
func fewest(have []int) int {
	best := 0
	for p := range have {
		if have[p] < have[best] {
			best = p
		}
	}
	return best
}
