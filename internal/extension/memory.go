package extension

import "fmt"

// The memory of an extension in a registry and in the map by which keys are placed: an
// entry in each of their trees, at most twice the measured size (memory_test.go).
const (
	extensionMemory = 1600
	treeMemory      = 240 // an entry, beside the pattern
)

// indexed is the memory of the code's entries in the indexes.
func (c *Code) indexed() int64 {
	sum := int64(extensionMemory)
	entries := int64(2)
	if c.Strict {
		entries = 3
	}
	for _, s := range c.Operations {
		sum += entries * patternMemory(s.Pattern)
	}
	for _, s := range c.Events {
		sum += 3 * patternMemory(s.Pattern)
	}
	for _, p := range c.Scope {
		sum += 3 * patternMemory(p)
	}
	return sum
}

func patternMemory(p Pattern) int64 { return treeMemory + 2*int64(len(p)) }

// Admit refuses an extension that would exceed the limits together with those that are
// registered already; one of the same name is replaced and doesn't count.
func (r *Registry) Admit(e *Extension) error {
	if err := r.Limits.admit(e); err != nil {
		return err
	}
	if old := r.Get(e.Name); old != nil && e.Memory <= old.Memory {
		return nil
	}
	if sum := r.Kept(e); sum > r.Limits.MemoryTotal {
		return Refuse(e.Name, fmt.Errorf("it keeps %d bytes of memory for as long as it is registered, and all extensions together would keep %d, the limit is %d", e.Memory, sum, r.Limits.MemoryTotal))
	}
	return nil
}

// Kept is the memory that all extensions keep once e is registered, in bytes; nil: as they are
// now.
func (r *Registry) Kept(e *Extension) int64 {
	if e == nil {
		return r.memory
	}
	sum := r.memory + e.Memory
	if old := r.Get(e.Name); old != nil {
		sum -= old.Memory
	}
	return sum
}

// Hold refuses limits that the registered extensions exceed; those that gone selects are
// about to be deleted and don't count.
func (r *Registry) Hold(l Limits, gone func(*Extension) bool) error {
	sum := int64(0)
	for _, e := range r.byName.All() {
		if gone(e) {
			continue
		}
		if err := l.admit(e); err != nil {
			return err
		}
		sum += e.Memory
	}
	if sum > l.MemoryTotal {
		return fmt.Errorf("stoa: %s: memory_total is %d, and the registered extensions keep %d bytes: remove some, or allow more", LimitsKey, l.MemoryTotal, sum)
	}
	return nil
}
