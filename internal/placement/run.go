package placement

// Run is the partition of a key, and how far the keys behind it are certain to lie there,
// too: all up to end, without it. An end of nil says so of the key alone. A directory of two
// levels, or the keys under a rule, are one run, so that a walk over all keys can pass over
// those that stay where they are. The map isn't in transit.
func (m *Map) Run(key []byte) (partition int, end []byte) {
	if m.rules == nil {
		return int(m.slots[HashSlot(key)]), directoryEnd(key)
	}
	rule, p, ruled := m.rules.over(key)
	switch {
	case !ruled:
		partition, end = int(m.slots[HashSlot(key)]), directoryEnd(key)
	case rule[len(rule)-1] == '/':
		partition, end = p.in.First(), behind([]byte(rule))
	default: // it is for this key alone
		return p.in.First(), nil
	}
	if end != nil {
		for next := range m.rules.tree.Range(after(key), end) {
			end = []byte(next)
			break
		}
	}
	return partition, end
}

// directoryEnd is the end of the keys in the key's directory, if all of them have one slot:
// only one of two levels has no further directories in between.
func directoryEnd(key []byte) []byte {
	if _, deep := levels(key); deep > 0 {
		return behind(key[:deep])
	}
	return nil
}

// behind is the end of the keys that begin with a directory.
func behind(dir []byte) []byte {
	return append(append(make([]byte, 0, len(dir)), dir[:len(dir)-1]...), '/'+1)
}

// after is the first key behind another.
func after(key []byte) []byte {
	return append(append(make([]byte, 0, len(key)+1), key...), 0)
}
