package apply

import (
	"errors"
	"fmt"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/version"
)

// wish carries out an operator's or the balancer's wish of where keys are to be: it begins
// the transit to the map that the wish makes of the present one. There is one map, which
// extensions' rules are in too, so that neither undoes the other's: an extension's keys stay
// in one slot, wherever that is, and a pin's rule stays as long as the pin does. During a
// transit wishes are refused; those of extensions follow from the registry and wait.
func (x *execution) wish(body []byte) Result {
	w, err := command.DecodeWish(body)
	if err != nil {
		return x.failed(unreadable(command.Place, body))
	}
	now := x.m.Placement()
	if err := x.covers(now.All()); err != nil {
		return x.failed(fmt.Errorf("apply %v: %w", command.Place, err))
	}
	if now.Transit() != nil {
		return x.failed(fault.Moving)
	}
	next, err := x.wished(now, &w)
	if errors.Is(err, fault.VersionTooLow) {
		return x.failed(err)
	}
	if err != nil {
		return x.failed(fault.BadPlacement.With("stoa: " + err.Error()))
	}
	if next != now {
		x.replace(x.m.towards(now, next))
	}
	return x.moved()
}

func (x *execution) wished(now *placement.Map, w *command.Wish) (*placement.Map, error) {
	asked := x.m.Extensions().Asks
	switch w.Op {
	case command.Drain:
		switch {
		case !x.m.MayDrain():
			return nil, fault.VersionTooLow
		case w.Partition < 1 || w.Partition > now.Partitions():
			return nil, fmt.Errorf("%d partitions can't be left of %d", w.Partition, now.Partitions())
		}
		return x.m.drained(w.Partition), nil
	case command.MoveSlot:
		return now.Moved(w.Key, w.Partition)
	case command.Pin:
		return now.Pin(w.Key, w.Partition, asked)
	case command.Unpin:
		if !now.Pinned(w.Key) {
			return nil, fmt.Errorf("there is no pin %q", w.Key)
		}
		return now.Unpin(w.Key, asked), nil
	}
	for _, a := range w.Slots {
		if a.Partition >= now.Partitions() {
			return nil, fmt.Errorf("there is no partition %d: there are 0 to %d", a.Partition, now.Partitions()-1)
		}
	}
	return now.Assigned(w.Slots), nil
}

// mayLeavePins reports whether the cluster could go down to a level as far as the map goes: a
// release below knows no pins, and no slots on their way.
func (m *Machine) mayLeavePins(to version.Level) bool {
	return to >= levelOfSlots || m.Placement().Early()
}
