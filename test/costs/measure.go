package main

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/store"
)

// keys is a server's own store as a State.
type keys struct{ *store.Store }

func (k keys) Range(key, end []byte, limit int) []kvwire.KeyValue {
	f, err := k.Store.Range(key, end, 0, limit)
	if err != nil {
		panic(err)
	}
	return f.Kvs
}

func (k keys) Count(key, end []byte) int {
	n, err := k.Store.Count(key, end, 0)
	if err != nil {
		panic(err)
	}
	return n
}

func (k keys) HasLease([]byte, int64) bool { return true }

func (k keys) Permits(_, _ []byte, _ bool) bool { return true }

// limits are such that a run ends by its steps, wherever it can.
var limits = extension.Limits{
	Steps: 1_000_000, Bytes: 1 << 30, Depth: 200, Operations: 1_000_000, Keys: 100_000, WriteBytes: 64 << 20,
	Source: 1 << 20, Memory: 16 << 20,
}

// used is what one run took, and what it was charged.
type used struct {
	nanoseconds, allocated float64
	steps, bytes           int64
	err                    error
}

// perStep is in nanoseconds.
func (u used) perStep() float64 { return u.nanoseconds / float64(max(u.steps, 1)) }

// perByte is how many bytes were allocated for each that was charged, beside those that
// every call takes.
func (u used) perByte() float64 {
	return max(0, u.allocated-callBytes) / float64(max(u.bytes, 1))
}

// callBytes is what a call takes whatever it does: frames, the request, the outcome.
const callBytes = 16 << 10

// program is a handler that is ready to be run.
type program struct {
	e      *extension.Extension
	keys   keys
	limits extension.Limits
}

// compile makes a handler of a put of a function's body.
func compile(body string, scope []string, k keys, l extension.Limits) (*program, error) {
	var b strings.Builder
	b.WriteString("return { scope = { ")
	for _, s := range append(scope, "/k/") {
		fmt.Fprintf(&b, "%q, ", s)
	}
	b.WriteString("}, operations = { { op = \"put\", key = \"/call\" } }, put = function(request)\n" + body + "\nend }")
	e, err := extension.Compile("probe", []byte(b.String()), 2, l)
	if err != nil {
		return nil, err
	}
	return &program{e: e, keys: k, limits: l}, nil
}

var request = &extension.Request{Op: extension.Put, Key: []byte("/call"), Value: []byte("value"), Client: "tester", Lease: 7}

// run runs a handler once. Time is the processor's, of all threads: the garbage
// collector's too, and nothing of what other processes do.
func (p *program) run() used {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := processorTime()
	out, err := p.e.Operation(p.keys, &p.limits, 100, request, nil)
	took := processorTime() - began
	runtime.ReadMemStats(&after)
	return used{
		nanoseconds: float64(took), allocated: float64(after.TotalAlloc - before.TotalAlloc),
		steps: out.Usage.Steps, bytes: out.Usage.Bytes, err: err,
	}
}

func processorTime() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}

// against measures a program in turns with another one, which the same disturbances meet,
// and returns the best run of each.
func (p *program) against(other *program, runs int) (u, o used) {
	best := func(p *program, so *used) {
		now := p.run()
		if so.steps > 0 {
			now.nanoseconds, now.allocated = min(now.nanoseconds, so.nanoseconds), min(now.allocated, so.allocated)
		}
		*so = now
	}
	for range runs {
		best(p, &u)
		best(other, &o)
	}
	return u, o
}

// typical is the first quartile of several runs. What other processes do makes runs slower, those
// that allocate more than others, and up to half of them on a busy machine; and a jump of the clock
// when the thread moves may make one faster.
func (p *program) typical(runs int) used {
	list := make([]used, runs)
	p.run() // fills what is kept between calls
	for i := range list {
		list[i] = p.run()
	}
	slices.SortFunc(list, func(a, b used) int { return int(a.nanoseconds - b.nanoseconds) })
	u := list[runs/4]
	for _, other := range list {
		u.allocated = min(u.allocated, other.allocated)
	}
	return u
}
