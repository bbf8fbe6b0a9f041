package extensions

import (
	"flag"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	long = flag.Bool("long", false, "attack with all that the limits allow, and ask for the figures that are promised")
	only = flag.String("attack", "", "make only attacks whose names match")
)

// sized is the size of an attack.
func sized(short, full int) int {
	if *long {
		return full
	}
	return short
}

// The plain client's bounds. The figures that are promised need a machine that has
// nothing else to do; a stall is seen on any.
const (
	promised    = 50 * time.Millisecond // of 99 in 100 puts, and no more than three times the quiet ones
	unnoticed   = 10 * time.Millisecond // is no more than a busy machine does by itself, whatever the quiet ones take
	longest     = time.Second           // of any put, in the short form
	quietLength = 2 * time.Second
	// asPlain is how much worse than plain puts of others an attack may be that takes as much
	// processor time.
	asPlain = 1.5
)

// attack is one client's hostile requests. A refusal is as good as a success: only the plain
// client matters.
type attack struct {
	name string
	do   func(w *world)
	// without is the same without an extension, if that is noticed, too: the plain client may
	// wait for as long then.
	without func(w *world)
	// after checks what has become of others.
	after func(w *world)
}

// attacks are all of them, by the part of a server that they aim at.
func attacks() []attack {
	all := slices.Concat([]attack{{name: "nothing", do: func(w *world) { time.Sleep(w.length()) }}}, registrations, calls, events, failures)
	match := regexp.MustCompile(*only)
	return slices.DeleteFunc(all, func(a attack) bool { return !match.MatchString(a.name) })
}

// setting is limits that a cluster may have.
type setting struct {
	name   string
	limits string // the value of /em/.limits, or none
	memory int64  // resident bytes of a server, at most
}

var settings = []setting{
	{name: "defaults", memory: 300 << 20},
	{name: "ceilings", memory: 1 << 30, limits: `{"steps": 500000, "bytes": 16777216, "depth": 200, "operations": 20000, "keys": 2000,
		"write_bytes": 2097152, "events": 1000, "event_steps": 500000, "source": 1048576, "memory": 16777216, "memory_total": 268435456}`},
}

// No attack is noticed by another client: at the default limits and at the highest that can
// be set, on one server and on three.
func TestAttacks(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		for _, s := range settings {
			if !*long && nodes == 3 && s.limits != "" {
				continue // they are the same servers
			}
			t.Run(fmt.Sprintf("%d servers/%s", nodes, s.name), func(t *testing.T) {
				if *long {
					apart(t, nodes, s)
				} else {
					together(t, nodes, s)
				}
			})
		}
	}
}

// apart makes each attack on a cluster of its own, and restarts that afterwards.
func apart(t *testing.T, nodes int, s setting) {
	for _, a := range attacks() {
		t.Run(a.name, func(t *testing.T) {
			w := newWorld(t, nodes, s)
			quiet := percentile(w.plain(func() { time.Sleep(quietLength) }), 0.99)
			bound, memory := min(promised, max(3*quiet, unnoticed)), s.memory
			if a.without != nil {
				without := percentile(w.plain(func() { a.without(w) }), 0.99)
				w.restart()
				t.Logf("without an extension: p99 %v; restarted: %d MiB", short(without), w.memory()>>20)
				bound = max(bound, without*3/2)
				memory = max(memory, 2*w.memory()) // in the end there is twice the history to load
				w.until = time.Time{}
			}
			var beside []time.Duration
			cores := w.cores(func() { beside = w.suffer(a, quiet) })
			p99 := percentile(beside, 0.99)
			if p99 > bound {
				bound = min(promised, max(bound, w.bearable(cores)))
			}
			require.LessOrEqual(t, p99, bound)
			w.restart()
			require.Less(t, w.memory(), memory)
		})
	}
}

// bearable is the bound of an attack that has kept so many cores busy, by the control.
func (w *world) bearable(cores float64) time.Duration {
	w.clear()
	time.Sleep(time.Second)
	var busy float64
	control := percentile(w.plain(func() { busy = w.cores(func() { w.control(cores) }) }), 0.99)
	w.t.Logf("beside plain puts that keep %.2f cores busy, as the attack did %.2f: p99 %v", busy, cores, short(control))
	return time.Duration(float64(control) * asPlain)
}

// together makes all attacks on one cluster.
func together(t *testing.T, nodes int, s setting) {
	w := newWorld(t, nodes, s)
	for _, a := range attacks() {
		t.Run(a.name, func(t *testing.T) {
			w := w.on(t)
			require.Less(t, percentile(w.suffer(a, 0), 1), longest)
			w.clear()
		})
	}
	w.restart()
}

// suffer makes an attack beside the plain client, and returns how long each of its puts took.
func (w *world) suffer(a attack, quiet time.Duration) []time.Duration {
	before := w.term()
	began := time.Now()
	beside := w.plain(func() { a.do(w) })
	w.t.Logf("%v; quiet p99 %v; beside p50 %v, p99 %v, longest %v of %d; %d MiB", time.Since(began).Round(time.Millisecond),
		short(quiet), short(percentile(beside, 0.5)), short(percentile(beside, 0.99)), short(percentile(beside, 1)), len(beside), w.memory()>>20)
	require.Equal(w.t, before, w.term(), "the leader has changed")
	require.Less(w.t, w.memory(), w.setting.memory)
	if a.after != nil {
		a.after(w)
	}
	return beside
}

func short(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
