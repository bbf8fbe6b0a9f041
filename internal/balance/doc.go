// Package balance decides which slots move between partitions, so that no partition's loop has
// much more to do than the others (AGORA §IV-F). It is a pure function of the load, the partition
// map, the number of keys and the time; package node carries its decisions out, on the leader.
//
// # Policy
//
// A [Controller] acts if the busiest loop works more than [Busy] of the time, and the loads of
// the busiest and of the idlest differ by more than [Uneven] of the mean, for two seconds
// ([Patience]): by then the decayed loads are those of a load that has jumped. They may have been uneven
// before it jumped, too, so it waits as long as their parts of the whole change ([Settled]). The busiest must have
// more to execute, too ([Heavier]): a loop's time is that of the clock, and on a machine that others
// use, or where a lock is held for long, it passes without any work. Then it
// moves a large slot with about half of the difference from the busiest to the idlest, and
// so on, until they differ by less than [Even] or there is no such slot: of a single hot slot the
// others are moved away. Each move makes the sum of the squares of the loads smaller, so a static
// load is balanced once, and then quiet. All moves of a decision are one transit. Slots that
// are about as large as the largest count as equal: the largest among many equal ones would be those
// that samples overestimate, and too little would be moved.
//
// A decision is worth it if the busiest loop becomes at least [Gain] less busy, and what the
// moves cost, as if all partitions waited meanwhile, is less than a tenth of what they gain in 30 s.
//
// Between two decisions are at least [Pause]. If the load is uneven again within that time, it
// jumps faster than slots can follow: then the next decision comes after [Hold], and after twice
// that each time that this happens again, up to [MaxHold].
//
// Slots that a pin holds stay. What extensions bring together is in one slot, and moves with it.
//
// Invariants:
//
//  1. Equal inputs have equal outputs; nothing here knows a clock.
//  2. Each move of a decision lowers the sum of the squares of the loads.
//  3. No two decisions are closer than Pause.
package balance
