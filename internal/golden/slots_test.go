//go:build !race

// One goroutine: there is nothing for the race detector, under which this takes five times as long.

package golden

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/placement"
)

// Pins, and slots that move, came with level 3.
const levelOfSlots = 3

func wishes() []command.Wish {
	return []command.Wish{
		{Op: command.Pin, Key: "/p/", Partition: 1},
		{Op: command.Pin, Key: "/gone/", Partition: 0},
		{Op: command.Unpin, Key: "/gone/"},
		{Op: command.MoveSlot, Key: "/q/r/", Partition: 1},
		{Op: command.Assign, Slots: []placement.Assignment{{Slot: 3, Partition: 1}, {Slot: placement.Slots - 1, Partition: 0}}},
	}
}

// fillSlots makes a state with a pin, in which slots are half moved.
func (s *state) fillSlots() {
	for i := range 8 {
		s.put(fmt.Sprintf("/p/%d/k", i), "pinned", 0)
		s.put(fmt.Sprintf("/q/%d/k", i), "moved", 0)
	}
	wish := func(w command.Wish) { s.system(command.Place, w.AppendTo(nil)) }
	wish(command.Wish{Op: command.Pin, Key: "/p/", Partition: 1})
	for s.machine.Placement().Transit() != nil {
		s.move(1, 1000)
	}
	var all command.Wish
	for slot := range placement.Slots {
		all.Slots = append(all.Slots, placement.Assignment{Slot: slot, Partition: 0})
	}
	all.Op = command.Assign
	wish(all)
	s.system(command.Move, (&command.Step{To: []byte("/q/4/")}).AppendTo(nil))
}

func TestSlotsMoveOn(t *testing.T) {
	each(t, func(t *testing.T, level int, read func(string) []byte) {
		if level < levelOfSlots {
			return
		}
		s := openGolden(t, unpack(t, read("file-slots.db.gz")))
		m := s.machine.Placement()
		require.NotNil(t, m.Transit())
		require.False(t, m.Early())
		require.Equal(t, []string{"/p/"}, m.Pins())
		for m.Transit() != nil {
			s.move(1, 3)
			m = s.machine.Placement()
		}
		for i := range 8 {
			require.Equal(t, "pinned", value(s, fmt.Sprintf("/p/%d/k", i)))
			require.Equal(t, "moved", value(s, fmt.Sprintf("/q/%d/k", i)))
			require.Equal(t, 1, m.Partition(fmt.Appendf(nil, "/p/%d/k", i)))
			require.Equal(t, 0, m.Partition(fmt.Appendf(nil, "/q/%d/k", i)))
		}
	})
}
