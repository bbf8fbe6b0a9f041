package extension

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/stoa-kv/stoa/internal/script"
)

// Limits bound the resources of an extension. They are replicated state: the value of
// [LimitsKey], or Defaults where there is none.
type Limits struct {
	// Of one call.
	Steps      int64 // expressions and statements evaluated, work of built-in functions
	Bytes      int64 // allocated, in all
	Depth      int   // of calls inside the script
	Operations int   // on keys; a range counts each key that it returns
	Keys       int   // written
	WriteBytes int   // written, of keys and values

	// Of one request: how many events may follow one from the other, and the steps of
	// all event handlers, with some for each run and for each key that they write. A
	// request that leads to more is refused.
	Events     int
	EventSteps int64

	// Of a source.
	Source int // bytes

	// The memory of extensions while they are registered, in bytes: of one, and of all
	// together.
	Memory      int64
	MemoryTotal int64

	// Failures is in how many requests in a row an extension may exceed a limit before
	// it is disabled; 0 never disables one.
	Failures int
}

// Defaults are the limits of a cluster that has set none. A call at all of them blocks its
// partition for about half a millisecond, all events that it may lead to for some 1.5 ms.
var Defaults = Limits{
	Steps: 100_000, Bytes: 4 << 20, Depth: 64, Operations: 2000, Keys: 1000, WriteBytes: 1 << 20,
	Events: 64, EventSteps: 250_000, Source: 64 << 10, Failures: 10,
	Memory: 4 << 20, MemoryTotal: 64 << 20,
}

// ceilings are the maxima of the settings. A call at all of them blocks its partition for
// some 2 ms, and so do all events that it may lead to: less than other clients notice.
var ceilings = Limits{
	Steps: 500_000, Bytes: 16 << 20, Depth: 200, Operations: 20_000, Keys: 2000, WriteBytes: 2 << 20,
	Events: 1000, EventSteps: 500_000, Source: 1 << 20, Failures: 1_000_000,
	Memory: 16 << 20, MemoryTotal: 256 << 20,
}

// Bounds are the limits of a cluster that has set none, and the maxima of its settings. All
// members must apply the same, so they change only with the cluster's version.
type Bounds struct{ Defaults, Ceilings Limits }

// Current are the bounds of this release, and First those of clusters at level 1.
var (
	Current = Bounds{Defaults: Defaults, Ceilings: ceilings}
	First   = firstBounds()
)

func firstBounds() Bounds {
	b := Current
	b.Defaults.EventSteps = 500_000
	b.Ceilings.Bytes, b.Ceilings.Operations = 64<<20, 100_000
	b.Ceilings.Keys, b.Ceilings.WriteBytes = 10_000, 8<<20
	b.Ceilings.EventSteps = 1_000_000
	return b
}

// Parse reads the value of [LimitsKey]: a JSON object of the fields that differ from the
// defaults.
func (b Bounds) Parse(value []byte) (Limits, error) {
	const want = "give a JSON object such as {\"steps\": 200000}"
	refuse := func(format string, args ...any) (Limits, error) {
		return Limits{}, fmt.Errorf("stoa: %s: %s; %s", LimitsKey, fmt.Sprintf(format, args...), want)
	}
	// The texts of the JSON package change with its version, and this one is an answer
	// that all replicas have to give alike.
	var fields map[string]json.RawMessage
	if json.Unmarshal(value, &fields) != nil || fields == nil {
		return refuse("this is no JSON object")
	}
	l := b.Defaults
	known := l.fields(&b.Ceilings)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		at := slices.IndexFunc(known, func(f field) bool { return f.name == name })
		if at < 0 {
			return refuse("there is no limit %.64q", name)
		}
		n, err := strconv.ParseInt(string(fields[name]), 10, 64)
		if err != nil {
			return refuse("%s must be an integer", name)
		}
		if err := known[at].check(n); err != nil {
			return Limits{}, err
		}
		known[at].set(n)
	}
	return l, nil
}

// Stored reads a value of [LimitsKey] that has been accepted, maybe within other bounds: a
// limit beyond these is taken for the nearest one.
func (b Bounds) Stored(value []byte) Limits {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(value, &fields)
	l := b.Defaults
	for _, f := range l.fields(&b.Ceilings) {
		if n, err := strconv.ParseInt(string(fields[f.name]), 10, 64); err == nil {
			f.set(min(max(n, f.min), f.max))
		}
	}
	return l
}

// field is one of the limits: its name, its range, and a pointer to it: *int or *int64.
type field struct {
	name     string
	at       any
	min, max int64
}

func (l *Limits) fields(most *Limits) []field {
	return []field{
		{"steps", &l.Steps, 100, most.Steps},
		{"bytes", &l.Bytes, 1 << 10, most.Bytes},
		{"depth", &l.Depth, 1, int64(most.Depth)},
		{"operations", &l.Operations, 1, int64(most.Operations)},
		{"keys", &l.Keys, 0, int64(most.Keys)},
		{"write_bytes", &l.WriteBytes, 0, int64(most.WriteBytes)},
		{"events", &l.Events, 0, int64(most.Events)},
		{"event_steps", &l.EventSteps, 2000, most.EventSteps},
		{"source", &l.Source, 1, int64(most.Source)},
		{"memory", &l.Memory, 1 << 10, most.Memory},
		{"memory_total", &l.MemoryTotal, 0, most.MemoryTotal},
		{"failures", &l.Failures, 0, int64(most.Failures)},
	}
}

func (f *field) check(n int64) error {
	if n < f.min || n > f.max {
		return fmt.Errorf("stoa: %s: %s is %d, want %d to %d", LimitsKey, f.name, n, f.min, f.max)
	}
	return nil
}

func (f *field) set(n int64) {
	switch at := f.at.(type) {
	case *int:
		*at = int(n)
	case *int64:
		*at = n
	}
}

// AdmitSource refuses a source that is too long for an extension of this name.
func (l *Limits) AdmitSource(name string, bytes int) error {
	if bytes > l.Source {
		return Refuse(name, fmt.Errorf("the source has %d bytes, the limit is %d", bytes, l.Source))
	}
	return nil
}

// admit refuses an extension that is beyond the limits of one.
func (l *Limits) admit(e *Extension) error {
	if err := l.AdmitSource(e.Name, e.Source); err != nil {
		return err
	}
	if e.Memory > l.Memory {
		return Refuse(e.Name, fmt.Errorf("it keeps %d bytes of memory for as long as it is registered, with what its functions use of the file's locals, the limit is %d", e.Memory, l.Memory))
	}
	return nil
}

func (l *Limits) run() script.Limits {
	return script.Limits{Steps: l.Steps, Bytes: l.Bytes, Depth: l.Depth}
}
