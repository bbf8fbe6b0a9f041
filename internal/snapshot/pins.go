package snapshot

import (
	"fmt"
	"slices"

	"github.com/stoa-kv/stoa/internal/placement"
)

// DroppedPin is a pin of the file that the new cluster doesn't have.
type DroppedPin struct {
	Key       string
	Partition int // in which the file has it
	Why       string
}

func (d DroppedPin) String() string {
	return fmt.Sprintf("The pin %q to partition %d is dropped: %s", d.Key, d.Partition, d.Why)
}

// pin adds the pins of an old map to a new one, each to the partition with the number that it
// had. The deepest come first: what extensions bring together under a pin would otherwise be in
// the way of a deeper one.
func pin(m, old *placement.Map, asked func(key string) bool) (next *placement.Map, dropped []DroppedPin) {
	old = old.Settled()
	for _, key := range slices.Backward(old.Pins()) {
		slot, _ := old.RuleFor(key)
		to := int(old.Table()[slot])
		if m.Partitions() == 1 {
			dropped = append(dropped, DroppedPin{key, to, "there is one partition"})
			continue
		}
		pinned, err := m.Pin(key, to, asked)
		if err != nil {
			dropped = append(dropped, DroppedPin{key, to, err.Error()})
			continue
		}
		m = pinned
	}
	slices.Reverse(dropped)
	return m, dropped
}
