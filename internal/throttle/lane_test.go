package throttle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// rig is a lane with a clock and timers that the test moves.
type rig struct {
	*Lane
	random func() float64
	time   int64
	timers []timer
}

type timer struct {
	at int64
	f  func()
}

func newRig() *rig {
	r := &rig{random: func() float64 { return 0.5 }}
	r.Lane = New(func() int64 { return r.time }, func(d time.Duration, f func()) {
		r.timers = append(r.timers, timer{r.time + int64(d), f})
	}, func() float64 { return r.random() })
	return r
}

func (r *rig) pass(ns int64) {
	r.time += ns
	for i := 0; i < len(r.timers); i++ {
		if t := r.timers[i]; t.at <= r.time {
			r.timers = slices.Delete(r.timers, i, i+1)
			i--
			t.f()
		}
	}
}

// request is one of the test's.
type request struct {
	name     string
	cost     Cost
	turn     *Turn
	admitted bool
	number   int
}

func (r *rig) enter(name string, c Cost) *request {
	q := &request{name: name, cost: c}
	var err error
	var now bool
	q.turn, now, err = r.Enter(name, c, func() { q.admitted = true })
	if err != nil {
		return nil
	}
	q.admitted = q.admitted || now
	return q
}

// Whatever is sent: what is in the log stays within the server's part of the budgets, or is a
// single request; slow ones take its part of a third of the time; those of one extension go in their order; all are admitted in
// the end, and each turn is woken once.
func TestTheLogHasRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRig()
		servers := rapid.Int64Range(1, 5).Draw(t, "servers")
		r.Servers(int(servers))
		var waiting, running []*request
		var slowTime int64
		check := func() {
			likely, most := int64(0), int64(0)
			last := map[string]int{}
			for _, q := range slices.Clone(waiting) {
				if q.admitted {
					require.True(t, q.turn.Admitted())
					require.GreaterOrEqual(t, q.number, last[q.name], "the order of an extension's requests")
					waiting = slices.DeleteFunc(waiting, func(o *request) bool { return o == q })
					running = append(running, q)
					if q.cost.slow() {
						slowTime += q.cost.Likely
					}
				} else if last[q.name] == 0 {
					last[q.name] = 1 << 30 // none behind it may have been admitted
				}
			}
			for _, q := range running {
				likely, most = likely+q.cost.Likely, most+q.cost.Most
			}
			require.Equal(t, [2]int64{likely, most}, [2]int64{r.likely, r.most})
			if len(running) > 1 {
				require.LessOrEqual(t, likely, likelyBudget/servers)
				require.LessOrEqual(t, most, mostBudget/servers)
			}
			require.Equal(t, len(waiting), r.waiting)
		}
		worst := int64(0)
		n := 0
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				c := Cost{Likely: rapid.Int64Range(0, 3_000_000).Draw(t, "likely")}
				c.Most = c.Likely + rapid.Int64Range(1, 8_000_000).Draw(t, "most")
				q := r.enter(fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "name")), c)
				if q == nil || q.turn == nil {
					return
				}
				worst = max(worst, c.Likely)
				n++
				q.number = n
				waiting = append(waiting, q)
				check()
			},
			"end": func(t *rapid.T) {
				if len(running) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(running)-1).Draw(t, "which")
				q := running[i]
				running = slices.Delete(running, i, i+1)
				q.turn.End()
				check()
			},
			"cancel": func(t *rapid.T) {
				if len(waiting) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(waiting)-1).Draw(t, "which")
				q := waiting[i]
				waiting = slices.Delete(waiting, i, i+1)
				q.turn.End()
				check()
			},
			"time": func(t *rapid.T) {
				r.pass(rapid.Int64Range(1, 20_000_000).Draw(t, "ns"))
				check()
				require.LessOrEqual(t, share*servers*slowTime, r.time+likelyBudget+share*servers*worst)
			},
		})
		for len(running)+len(waiting) > 0 {
			for _, q := range running {
				q.turn.End()
			}
			running = nil
			r.pass(1_000_000)
			check()
		}
		require.Empty(t, r.ring)
		require.Empty(t, r.lines)
	})
}

// Requests of other extensions go before the second one of an extension with many.
func TestExtensionsTakeTurns(t *testing.T) {
	r := newRig()
	c := Cost{Likely: 90_000, Most: mostBudget}
	var hogs []*request
	for range 100 {
		hogs = append(hogs, r.enter("hog", c))
	}
	other := r.enter("other", c)
	hogs[0].turn.End()
	require.True(t, hogs[1].admitted, "it was first")
	hogs[1].turn.End()
	require.True(t, other.admitted)
	require.False(t, hogs[2].admitted)
}

// While slow requests wait for their share of time, others go on.
func TestOthersPassThoseThatWaitForTime(t *testing.T) {
	r := newRig()
	slow := Cost{Likely: 1_000_000, Most: 1_000_000}
	r.enter("hog", slow).turn.End()
	waits := r.enter("hog", slow)
	require.False(t, waits.admitted)
	require.True(t, r.enter("other", Cost{Likely: 40_000, Most: 40_000}).admitted)
	const until = share*(1_000_000+1_000_000+250_000) - likelyBudget
	r.pass(until - 1)
	require.False(t, waits.admitted)
	r.pass(1)
	require.True(t, waits.admitted)
}

// Cheap requests have no turn. Those that have not run yet may do their worst.
func TestCheapRequestsPass(t *testing.T) {
	r := newRig()
	var h History
	require.Equal(t, Cost{Most: 500_000}, h.Cost(500_000))
	for range 100 {
		h.Note(5000, 100, 20)
	}
	require.Nil(t, r.enter("cheap", h.Cost(500_000)).turn)
	for _, worst := range [][2]int64{{90_000, 20}, {100, 10_000}} {
		var h History
		h.Note(5000, worst[0], worst[1])
		for range 1000 {
			h.Note(5000, 100, 20)
		}
		require.NotNil(t, r.enter("cheap, mostly", h.Cost(500_000)).turn)
	}
}

// The first request tells what the next is likely to cost; later ones count with some before.
func TestTheFirstRequestCounts(t *testing.T) {
	var h History
	h.Note(1_000_000, 100_000, 200_000)
	require.Equal(t, int64(3_000_000), h.Cost(0).Likely)
	h.Note(200_000, 100_000, 0)
	require.Equal(t, int64(3_000_000-2_800_000/meanOf), h.Cost(0).Likely)
}

// A thread that isn't scheduled while it executes a brief script says nothing of that: requests that
// take microseconds had to wait for one another until they timed out.
func TestInterruptedRequestsAreBrief(t *testing.T) {
	r := newRig()
	r.Servers(3)
	var h History
	for range 3 {
		h.Note(100_000_000, 300, 50)
		q := r.enter("x", h.Cost(0))
		require.True(t, q.turn == nil || q.admitted)
	}
	require.Less(t, h.Cost(0).Likely, int64(slow))
}

// However long requests take, the next one is admitted before its client gives up.
func TestTheNextIsAdmittedInTime(t *testing.T) {
	for _, servers := range []int{1, 3, 7} {
		r := newRig()
		r.random = func() float64 { return 0.999 }
		r.Servers(servers)
		c := Cost{Likely: 80_000_000, Most: 80_000_000}
		r.enter("x", c).turn.End()
		q := r.enter("x", c)
		require.False(t, q.admitted)
		r.pass(int64(patience))
		require.True(t, q.admitted)
	}
}

// Slow requests of several servers don't keep coming at the same time, even if they once do.
func TestServersGetOutOfStep(t *testing.T) {
	const servers, takes = 3, 2_000_000 // ns, in the log
	r := rand.New(rand.NewPCG(1, 2))
	var lanes [servers]*rig
	var line, running [servers][]*request
	for i := range lanes {
		lanes[i] = newRig()
		lanes[i].random = r.Float64
		lanes[i].Servers(servers)
	}
	var ends [servers]int64
	beside, all := 0, 0
	for range 200_000 {
		for i, l := range lanes {
			l.pass(100_000)
			for len(line[i]) < 4 {
				line[i] = append(line[i], l.enter("x", Cost{Likely: 2 * takes, Most: takes}))
			}
			if len(running[i]) > 0 && l.time >= ends[i] {
				running[i][0].turn.End()
				running[i] = nil
			}
			if line[i][0].admitted {
				running[i], line[i] = line[i][:1], slices.Clone(line[i][1:])
				ends[i] = l.time + takes
				all++
				for j := range lanes {
					if j != i && len(running[j]) > 0 {
						beside++
					}
				}
			}
		}
	}
	const each = share * (2*takes + 2*takes*(2*takes)/long + 2*takes*(2*takes)/longest*(2*takes)/longest)
	require.InDelta(t, 200_000*100_000/each, all, float64(all)/10, "their share of the time")
	require.Less(t, beside, all/4)
}

// Requests that would wait too long are refused, those of other extensions are not.
func TestALineIsBounded(t *testing.T) {
	r := newRig()
	c := Cost{Most: mostBudget}
	for range 1 + maxLine {
		require.NotNil(t, r.enter("hog", c))
	}
	require.Nil(t, r.enter("hog", c))
	require.NotNil(t, r.enter("other", c))
}
