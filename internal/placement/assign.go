package placement

import (
	"fmt"
	"slices"
	"strings"
)

// Assignment is the partition that a slot is to lie in.
type Assignment struct{ Slot, Partition int }

// Assigned is the map with slots in other partitions. Those that a pin holds stay where
// they are. It is the map itself if that changes nothing.
func (m *Map) Assigned(list []Assignment) *Map {
	held := m.Held()
	slots := m.slots
	for _, a := range list {
		if held[a.Slot] == "" {
			slots[a.Slot] = uint8(a.Partition)
		}
	}
	return m.withSlots(slots)
}

func (m *Map) withSlots(slots [Slots]uint8) *Map {
	if slots == m.slots {
		return m
	}
	next := &Map{partitions: m.partitions, slots: slots}
	if m.rules == nil {
		return next
	}
	tree := m.rules.tree
	for key, p := range m.rules.tree.All() {
		if in := Of(int(slots[p.slot])); in != p.in {
			tree = tree.With(key, place{p.slot, in})
		}
	}
	next.rules = &rules{tree: tree, pins: m.rules.pins}
	return next
}

// Pins are the keys that are pinned, in order. Each has a rule.
func (m *Map) Pins() []string {
	if m.rules == nil {
		return nil
	}
	return slices.Clone(m.rules.pins)
}

// Pinned tells whether there is a pin with exactly this key.
func (m *Map) Pinned(key string) bool {
	if m.rules == nil {
		return false
	}
	_, ok := slices.BinarySearch(m.rules.pins, key)
	return ok
}

// pinOver returns the longest pin that a rule with this key falls under.
func (m *Map) pinOver(key string) string {
	over := ""
	for _, pin := range m.rules.pins {
		if pin == key || strings.HasSuffix(pin, "/") && strings.HasPrefix(key, pin) {
			over = pin // they are in order, so a later one is longer
		}
	}
	return over
}

// Held is, for each slot that a pin holds where it is, the pin; "" for the others. A pin
// holds the slots of its own rule and of those under it.
func (m *Map) Held() (held [Slots]string) {
	if m.rules == nil || len(m.rules.pins) == 0 {
		return held
	}
	for key, p := range m.rules.tree.All() {
		if pin := m.pinOver(key); pin != "" && held[p.slot] == "" {
			held[p.slot] = pin
		}
	}
	return held
}

// Moved is the map with the slot of a key in another partition; of a key that ends in "/",
// the one slot in which all keys are that begin with it, but for those that deeper rules
// are for. All other keys of the slot come along.
func (m *Map) Moved(key string, to int) (*Map, error) {
	if err := m.check(key, to); err != nil {
		return nil, err
	}
	slot, ruled := m.RuleOver(key)
	if !ruled {
		if _, deep := levels([]byte(key)); strings.HasSuffix(key, "/") && deep == 0 {
			return nil, fmt.Errorf("the keys below %q lie in many slots: move its directories one by one, or pin it, which keeps all of them together", key)
		}
		slot = HashSlot([]byte(key))
	}
	if pin := m.Held()[slot]; pin != "" && int(m.slots[slot]) != to {
		return nil, fmt.Errorf("%q is held in partition %d by the pin %q: unpin that first, or pin it to partition %d", key, m.slots[slot], pin, to)
	}
	slots := m.slots
	slots[slot] = uint8(to)
	return m.withSlots(slots), nil
}

// Pin is the map in which all keys that begin with key are together in a partition (if it
// doesn't end in "/", this key alone) and stay there. asked tells for which keys extensions
// want rules: keys that an extension brings together stay together, so a pin of some of
// them takes the others along.
func (m *Map) Pin(key string, to int, asked func(key string) bool) (*Map, error) {
	if err := m.check(key, to); err != nil {
		return nil, err
	}
	free := m.Unpin(key, asked) // it may be pinned elsewhere
	bound, own := free.boundWith(key, asked)
	held := free.Held()
	slots := free.slots
	for _, slot := range bound {
		if pin := held[slot]; pin != "" && int(slots[slot]) != to {
			return nil, fmt.Errorf("an extension keeps keys of %q together with those of the pin %q, in partition %d: unpin that first, or pin %q to partition %d", key, pin, slots[slot], key, slots[slot])
		}
		slots[slot] = uint8(to)
	}
	moved := free.withSlots(slots)
	if own < 0 {
		own = moved.slotIn(key, to)
		if own < 0 { // the partition has none
			own = HashSlot([]byte(key))
			if pin := held[own]; pin != "" {
				return nil, fmt.Errorf("partition %d has no slots, and that of %q is held by the pin %q: move other keys there first", to, key, pin)
			}
			slots[own] = uint8(to)
			moved = free.withSlots(slots)
		}
	}
	next := moved.Changed([]Rule{{key, own}}, nil)
	at, _ := slices.BinarySearch(next.rules.pins, key)
	next.rules.pins = slices.Insert(slices.Clone(next.rules.pins), at, key)
	return next, nil
}

// boundWith are the slots of the extensions that have rules over a key and under it; own is
// the one that the key has to be in, -1 if none binds it.
func (m *Map) boundWith(key string, asked func(key string) bool) (bound []int, own int) {
	own = -1
	if m.rules == nil {
		return nil, own
	}
	for k, p := range m.rules.tree.Above([]byte(key)) {
		if (k == key || strings.HasSuffix(k, "/")) && asked(k) {
			bound, own = []int{int(p.slot)}, int(p.slot)
		}
	}
	if !strings.HasSuffix(key, "/") {
		return bound, own
	}
	for k, p := range m.rules.tree.Range(after([]byte(key)), behind([]byte(key))) {
		if asked(k) && m.pinOver(k) == m.pinOver(key) { // else a deeper pin is for it
			if bound = append(bound, int(p.slot)); own < 0 {
				own = int(p.slot)
			}
		}
	}
	return bound, own
}

// slotIn is a slot of a partition, the key's own if it is there, -1 if there is none.
func (m *Map) slotIn(key string, partition int) int {
	first := HashSlot([]byte(key))
	for i := range Slots {
		if s := (first + i) % Slots; int(m.slots[s]) == partition {
			return s
		}
	}
	return -1
}

// Unpin is the map without the pin of a key: nothing holds its slot there any more, and its
// rule is gone unless extensions ask for it. Without such a pin it is the map itself.
func (m *Map) Unpin(key string, asked func(key string) bool) *Map {
	if !m.Pinned(key) {
		return m
	}
	next := &Map{partitions: m.partitions, slots: m.slots}
	pins := slices.DeleteFunc(m.Pins(), func(p string) bool { return p == key })
	next.rules = &rules{tree: m.rules.tree, pins: pins}
	if asked(key) {
		return next
	}
	return next.Changed(nil, []string{key})
}

func (m *Map) check(key string, to int) error {
	switch {
	case key == "":
		return fmt.Errorf("a prefix is missing")
	case to < 0 || to >= m.partitions:
		return fmt.Errorf("there is no partition %d: there are 0 to %d", to, m.partitions-1)
	}
	return nil
}
