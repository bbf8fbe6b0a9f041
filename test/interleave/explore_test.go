package interleave_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/interleave"
	"github.com/stoa-kv/stoa/test/interleave/atomic"
	"github.com/stoa-kv/stoa/test/interleave/sync"
)

// ends are the different ends of a scenario, over all schedules with so many preemptions.
func ends(bound int, scenario func(w *interleave.World) (end func() string)) []string {
	all := map[string]bool{}
	interleave.Each(bound, func(w *interleave.World) func(stuck string) bool {
		end := scenario(w)
		return func(stuck string) bool {
			if stuck == "" {
				stuck = end()
			}
			all[stuck] = true
			return true
		}
	})
	var list []string
	for end := range all {
		list = append(list, end)
	}
	slices.Sort(list)
	return list
}

// Two tasks of two steps each: with three preemptions all six orders are there, with none only two.
func TestOrders(t *testing.T) {
	scenario := func(w *interleave.World) func() string {
		var order strings.Builder
		for _, name := range []string{"a", "b"} {
			w.Go(name, func() {
				for range 2 {
					interleave.Point()
					order.WriteString(name)
				}
			})
		}
		return order.String
	}
	require.Equal(t, []string{"aabb", "bbaa"}, ends(0, scenario))
	require.Equal(t, []string{"aabb", "abba", "baab", "bbaa"}, ends(1, scenario))
	require.Equal(t, []string{"aabb", "abab", "abba", "baab", "baba", "bbaa"}, ends(3, scenario))
}

// An increment that isn't atomic loses another with one preemption, and one that is never does.
func TestLostUpdate(t *testing.T) {
	increments := func(add func(n *atomic.Int64)) func(w *interleave.World) func() string {
		return func(w *interleave.World) func() string {
			n := new(atomic.Int64)
			for _, name := range []string{"a", "b"} {
				w.Go(name, func() { add(n) })
			}
			return func() string { return string(rune('0' + n.Load())) }
		}
	}
	apart := increments(func(n *atomic.Int64) { n.Store(n.Load() + 1) })
	require.Equal(t, []string{"2"}, ends(0, apart))
	require.Equal(t, []string{"1", "2"}, ends(1, apart))
	require.Equal(t, []string{"2"}, ends(3, increments(func(n *atomic.Int64) { n.Add(1) })))
}

// Locks exclude, those who wait for them go on, and a cycle of waits is told.
func TestLocks(t *testing.T) {
	for name, locks := range map[string]func() (a, b sync.Locker){
		"mutexes": func() (a, b sync.Locker) { return new(sync.Mutex), new(sync.Mutex) },
		"writers": func() (a, b sync.Locker) { return new(sync.RWMutex), new(sync.RWMutex) },
	} {
		scenario := func(opposite bool) func(w *interleave.World) func() string {
			return func(w *interleave.World) func() string {
				a, b := locks()
				n := 0
				both := func(first, second sync.Locker) func() {
					return func() {
						first.Lock()
						second.Lock()
						before := n
						interleave.Point()
						n = before + 1
						second.Unlock()
						first.Unlock()
					}
				}
				w.Go("one", both(a, b))
				if opposite {
					a, b = b, a
				}
				w.Go("other", both(a, b))
				return func() string { return string(rune('0' + n)) }
			}
		}
		require.Equal(t, []string{"2"}, ends(3, scenario(false)), name)
		cycle := ends(1, scenario(true))
		require.Len(t, cycle, 2, name)
		require.Contains(t, strings.Join(cycle, "\n"), "waits for a lock that nobody gives up", name)
	}
}

// A reader that comes again while a writer waits would wait for itself, as in Go.
func TestReadersWaitForWriters(t *testing.T) {
	again := func(w *interleave.World) func() string {
		var m sync.RWMutex
		w.Go("reader", func() {
			m.RLock()
			defer m.RUnlock()
			m.RLock()
			defer m.RUnlock()
		})
		w.Go("writer", func() {
			m.Lock()
			defer m.Unlock()
		})
		return func() string { return "done" }
	}
	require.Equal(t, []string{"done"}, ends(0, again))
	require.Len(t, ends(1, again), 2)
}

// A task with a condition runs as often as that comes true, and the execution ends when none does.
func TestWhen(t *testing.T) {
	require.Equal(t, []string{"1", "2"}, ends(1, func(w *interleave.World) func() string {
		var m sync.Mutex
		woken, runs := false, 0
		w.When("loop", func() bool { return woken }, func() {
			woken = false
			m.Lock()
			defer m.Unlock()
			runs++
		})
		w.Go("waker", func() {
			for range 2 {
				m.Lock()
				woken = true
				m.Unlock()
			}
		})
		return func() string { return string(rune('0' + runs)) }
	}))
}

// What is whole isn't preempted.
func TestWhole(t *testing.T) {
	require.Equal(t, []string{"2"}, ends(3, func(w *interleave.World) func() string {
		n := new(atomic.Int64)
		for _, name := range []string{"a", "b"} {
			w.Go(name, func() { interleave.Whole(func() { n.Store(n.Load() + 1) }) })
		}
		return func() string { return string(rune('0' + n.Load())) }
	}))
}
