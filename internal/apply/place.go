package apply

import "github.com/stoa-kv/stoa/internal/placement"

// Placement is the map by which keys are placed now. It is replaced at a
// rendezvous of all partitions, so whoever holds the lock of any store sees the
// one that is true; whoever holds none must be ready for fault.Moved.
func (m *Machine) Placement() *placement.Map { return m.placed.Load() }
