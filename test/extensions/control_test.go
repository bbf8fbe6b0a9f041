package extensions

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// What the processors do is shared: three servers on two cores delay a plain client whatever
// keeps them busy. So an attack that is noticed is compared with a control: puts of ordinary
// clients, at an even pace, that take as much processor time as the attack.

const (
	controlLength = 8 * time.Second
	controlTick   = 2 * time.Millisecond
	controlPuts   = 32 // at once, at most
)

// spent is the processor time that the servers and their clients here have used.
func (w *world) spent() time.Duration {
	servers, err := w.CPU()
	require.NoError(w.t, err)
	var own unix.Rusage
	require.NoError(w.t, unix.Getrusage(unix.RUSAGE_SELF, &own))
	return servers + time.Duration(own.Utime.Nano()+own.Stime.Nano())
}

// cores is how many cores were busy while do was done.
func (w *world) cores(do func()) float64 {
	before, began := w.spent(), time.Now()
	do()
	return float64(w.spent()-before) / float64(time.Since(began))
}

// control puts plain keys for a while, as many as keep so many cores busy.
func (w *world) control(cores float64) {
	cli := w.clientAs("control")
	var puts sync.WaitGroup
	var done, running atomic.Int64
	before, began, last := w.spent(), time.Now(), time.Now()
	perPut, due := float64(400*time.Microsecond), 0.0
	for time.Since(began) < controlLength {
		time.Sleep(controlTick)
		now := time.Now()
		due = min(due+cores*float64(now.Sub(last))/perPut, controlPuts)
		last = now
		for ; due >= 1 && running.Load() < controlPuts; due-- {
			running.Add(1)
			puts.Go(func() {
				defer running.Add(-1)
				_, _ = cli.Put(w.ctx, fmt.Sprintf("/control/%d/key", done.Add(1)%100), "value")
			})
		}
		if n := done.Load(); n > 100 {
			perPut = float64(w.spent()-before) / float64(n)
		}
	}
	puts.Wait()
}

// The control keeps as many cores busy as it is told to.
func TestControl(t *testing.T) {
	if !*long {
		t.Skip("for an idle machine")
	}
	w := newWorld(t, 3, settings[0])
	for _, want := range []float64{0.5, 1} {
		var got float64
		took := w.plain(func() { got = w.cores(func() { w.control(want) }) })
		t.Logf("%.2f cores: p99 %v", got, short(percentile(took, 0.99)))
		require.InDelta(t, want, got, want/4)
	}
}
