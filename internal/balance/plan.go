package balance

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/stoa-kv/stoa/internal/placement"
)

// Plan returns the moves that would make the loads even now, if they need it and are worth it,
// whatever was decided before.
func Plan(s *Situation) Decision {
	d := Decision{Before: s.Load.Loops(s.Where)}
	d.After = d.Before
	if d.Why = unevenness(s.Load, d.Before); d.Why != "" {
		return d
	}
	moves, after := even(s)
	before, _, _ := extremes(d.Before)
	now, _, _ := extremes(after)
	gain := d.Before[before] - after[now]
	if gain < Gain*d.Before[before] {
		d.Why = fmt.Sprintf("partition %d works %.0f %% of the time, but moves would gain little: its load comes from few slots, from pinned ones, or from none",
			before, 100*d.Before[before])
		return d
	}
	count(s, moves)
	name(s, moves)
	d.Moves = moves
	cost := time.Duration(d.Keys())*costOfKey + time.Duration(s.Total)*costOfPass
	if most := time.Duration(worth * gain * float64(horizon)); cost > most {
		d.Why = fmt.Sprintf("to move %d slots with %d keys would cost about %v, and be worth at most %v", len(moves), d.Keys(), cost.Round(time.Millisecond), most.Round(time.Millisecond))
		d.Moves = nil
		return d
	}
	d.After = after
	d.Why = fmt.Sprintf("the loops work %.0f %% to %.0f %% of the time; %d slots with %d keys move, for %.0f %% to %.0f %%",
		100*slices.Min(d.Before), 100*slices.Max(d.Before), len(moves), d.Keys(), 100*slices.Min(after), 100*slices.Max(after))
	return d
}

// even finds the moves, always from the busiest partition to the idlest, as far as the busiest
// has slots that fit.
func even(s *Situation) (moves []Move, loops []float64) {
	loops = s.Load.Loops(s.Where)
	_, _, mean := extremes(loops)
	movable := slotsBy(s, mean)
	for len(moves) < MaxSlots {
		from, to, _ := extremes(loops)
		gap := loops[from] - loops[to]
		if gap <= Even*mean {
			break
		}
		at := fitting(movable[from], &s.Load.Slots, gap)
		if at < 0 {
			break
		}
		slot := movable[from][at]
		movable[from] = slices.Delete(movable[from], at, at+1)
		moves = append(moves, Move{Slot: slot, From: from, To: to, Load: s.Load.Slots[slot]})
		loops[from] -= s.Load.Slots[slot]
		loops[to] += s.Load.Slots[slot]
	}
	return moves, loops
}

// fitting is the place of the slot that should bridge a gap: the first that has at most half of
// it, or one of up to three quarters if that lowers the sum of the squares by much more. It is -1
// if there is none.
func fitting(slots []int, loads *[placement.Slots]float64, gap float64) int {
	gain := func(at int) float64 {
		if at < 0 {
			return 0
		}
		return loads[slots[at]] * (gap - loads[slots[at]])
	}
	half, more := -1, -1
	for i, slot := range slots {
		switch l := loads[slot]; {
		case l <= gap/2:
			if half < 0 {
				half = i
			}
		case l <= 0.75*gap && (more < 0 || l < loads[slots[more]]):
			more = i
		}
	}
	if gain(more) > 2*gain(half) {
		return more
	}
	return half
}

// slotsBy are the slots of each partition that may move, the most loaded first, but for those
// that are about equal. A slot that has been moved is not among those of its new partition: none
// moves twice.
func slotsBy(s *Situation, mean float64) [][]int {
	list := make([][]int, s.Where.Partitions())
	held := s.Where.Held()
	for slot, p := range s.Where.Table() {
		if held[slot] == "" && s.Load.Slots[slot] > negligible*mean {
			list[p] = append(list[p], slot)
		}
	}
	for _, slots := range list {
		slices.SortFunc(slots, func(a, b int) int { return cmp.Compare(s.Load.Slots[b], s.Load.Slots[a]) })
		for from := 0; from < len(slots); {
			class := from
			for class < len(slots) && s.Load.Slots[slots[class]] >= s.Load.Slots[slots[from]]/alike {
				class++
			}
			slices.SortFunc(slots[from:class], func(a, b int) int { return cmp.Compare(mixed(a), mixed(b)) })
			from = class
		}
	}
	return list
}

// mixed puts slots into an order that has nothing to do with their keys or loads.
func mixed(slot int) int { return slot * 619 % placement.Slots } // any odd factor permutes them

// count sets how many keys the moves concern.
func count(s *Situation, moves []Move) {
	keys := make([]*[placement.Slots]int, s.Where.Partitions())
	for i := range moves {
		m := &moves[i]
		if keys[m.From] == nil {
			keys[m.From] = s.Keys(m.From)
		}
		m.Keys = keys[m.From][m.Slot]
	}
}

// name sets the hottest prefix of the slots that are moved.
func name(s *Situation, moves []Move) {
	hottest := s.Load.Prefixes(s.Where)
	for i := range moves {
		moves[i].Prefix = hottest[moves[i].Slot]
	}
}
