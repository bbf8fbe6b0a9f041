package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/client/compose"
	"github.com/stoa-kv/stoa/test/sheet"
)

// enough is the number of requests that a fake accepts before it stops its
// client.
const enough = 20_000

// fake notes what it is asked for.
type fake struct {
	gauge          *gauge
	mu             sync.Mutex
	requests       []string
	underWay, most int
	err            error
}

func (f *fake) begin(request string) func(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, request)
	if len(f.requests) == enough {
		f.gauge.stopped.Store(true)
	}
	f.underWay++
	f.most = max(f.most, f.underWay)
	return func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.underWay--
		return f.err
	}
}

func (f *fake) put(key string) func(context.Context) error { return f.begin("put " + key) }
func (f *fake) get(key string) func(context.Context) error { return f.begin("get " + key) }
func (f *fake) stats() compose.Stats                       { return compose.Stats{} }
func (f *fake) close()                                     {}

func drive(t *testing.T, f *fake, m mix) (*member, error) {
	g := &gauge{}
	g.recording.Store(true)
	w := &worker{region: 1, client: &member{requester: f}, rnd: rand.New(rand.NewPCG(1, 2))}
	f.gauge = g
	err := w.run(t.Context(), m, g)
	if err == nil {
		require.Len(t, w.latencies, len(f.requests))
	}
	return w.client, err
}

// A client does what the mix says: shares of reads and of its own region, whole bursts, no
// more requests under way than the window.
func TestMix(t *testing.T) {
	f := &fake{}
	client, err := drive(t, f, mix{reads: 90, local: [2]int{0, 80}, burst: 10, window: 4})
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(f.requests), enough)
	require.LessOrEqual(t, f.most, 4)
	require.Zero(t, f.underWay)
	var switches, toReads int64
	reads, local, before := 0, 0, true
	for i, r := range f.requests {
		if strings.HasPrefix(r, "get ") {
			reads++
		}
		home := strings.Contains(r, " /west/west0/")
		if i > 0 && home != before {
			switches++
			if strings.HasPrefix(r, "get ") {
				toReads++
			}
		}
		before = home
		if home {
			local++
		} else {
			require.Contains(t, r, " /east/west0/")
		}
		if first := f.requests[i/10*10]; home != strings.Contains(first, " /west/") {
			t.Fatalf("request %d is in another cluster than the first of its burst", i)
		}
	}
	require.Equal(t, []int64{switches, toReads}, []int64{client.switches, client.toReads})
	require.InDelta(t, 0.9, float64(reads)/float64(len(f.requests)), 0.03)
	require.InDelta(t, 0.8, float64(local)/float64(len(f.requests)), 0.05)
}

func TestAFailedRequestEndsTheRound(t *testing.T) {
	broken := errors.New("broken")
	_, err := drive(t, &fake{err: broken}, mix{reads: 50, local: [2]int{100, 100}, burst: 1, window: 4})
	require.ErrorIs(t, err, broken)
}

// report of made-up figures.
func made(t *testing.T) *report {
	p, err := parse([]string{"-servers", "stoa", "-reads", "50,100", "-locals", "0,100", "-bursts", "1,50", "-img", "img", "-write", "out.md"})
	require.NoError(t, err)
	r := newReport(p)
	add := func(way string, m mix, rate float64, switches, syncs int64) {
		f := figures{rate: rate, p50: time.Millisecond, p99: 2 * time.Millisecond}
		r.add(&bytes.Buffer{}, cell{"stoa", way, m}, sample{region: [2]figures{f, f}, requests: 100, switches: switches, syncs: syncs, toReads: syncs})
	}
	one := r.mix(50, 100, 100, 50)
	one.window = 1
	for _, rate := range []float64{90, 98, 300} {
		add(composed, one, rate, 0, 0)
	}
	for range 3 {
		add(plain, one, 100, 0, 0)
	}
	for _, read := range []int{50, 100} {
		for _, burst := range []int{1, 50} {
			for _, way := range []string{composed, neverSync, syncAll} {
				add(way, r.mix(read, 100, 0, burst), 500, 7, 7*int64(read)/100)
			}
		}
		add(composed, r.mix(read, 0, 0, 50), 500, 7, 7*int64(read)/100)
		for _, way := range []string{composed, neverSync, syncAll} {
			add(way, r.mix(read, 100, 100, 50), 800, 0, 0)
		}
		add(stretched, r.mix(read, 100, 100, 50), 100, 0, 0)
	}
	return r
}

func TestReport(t *testing.T) {
	r := made(t)
	var out bytes.Buffer
	r.markdown(&out)
	text := out.String()
	for _, line := range []string{
		"| stoa, local work, 50 % reads, 1 request in flight, composed : plain | throughput ≥ 0.95x | 0.98x (0.90–3.00), p50 1.00x | met |",
		"| stoa, reads alone, 400 requests | syncs = switches | 21 switches, 21 to a read, 21 syncs, 0 others | met |",
		"| stoa, west, 50 % reads, all local, 3 clients, 3 in the east; composed : stretched | throughput ≥ 7x | 8.00x | met |",
		"| 50 % | any | stretched | 100 | 1ms / 2ms | 100 | 1ms / 2ms |  |  |",
		"| 50 % | 0 % | composed | 500 | 1ms / 2ms | 500 | 1ms / 2ms | 5.00x | 5.00x |",
		"![Beside one stretched cluster (figure 7)](img/compose-stoa-figure7.svg)",
	} {
		require.Contains(t, text, line)
	}
	require.NotContains(t, text, "missed")
	require.NoError(t, sheet.Draw(t.TempDir(), r.charts()))
}

// Missed goals are reported as such.
func TestMissedGoals(t *testing.T) {
	r := made(t)
	for c, all := range r.samples {
		switch c.way {
		case plain, stretched:
			for i := range all {
				all[i].region[0].rate, all[i].region[1].rate = 400, 400
			}
		case composed:
			all[0].syncs += 3
		}
	}
	missed := 0
	for _, row := range r.goals() {
		if row[3] == "missed" {
			missed++
		}
	}
	require.Equal(t, 4, missed, "%v", r.goals())
}
