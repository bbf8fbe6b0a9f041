package extension

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/stoa-kv/stoa/internal/script"
)

// Limits bound what an extension may use. They are replicated state: the value of
// [LimitsKey], or Defaults where there is none.
type Limits struct {
	// Of one call.
	Steps      int64 `json:"steps"`       // expressions and statements evaluated, work of built-in functions
	Bytes      int64 `json:"bytes"`       // allocated, in all
	Depth      int   `json:"depth"`       // of calls inside the script
	Operations int   `json:"operations"`  // on keys; a range counts each key that it returns
	Keys       int   `json:"keys"`        // written
	WriteBytes int   `json:"write_bytes"` // written, of keys and values

	// Of one request: how often event handlers run because of what event handlers
	// have changed, and the steps of all of them, also of those that its own changes
	// set off, with some for each key that they write; a handler that has begun may go
	// on.
	Events     int   `json:"events"`
	EventSteps int64 `json:"event_steps"`

	// Of a source.
	Source int `json:"source"` // bytes

	// Failures is how many calls in a row may exceed a limit before the extension
	// is disabled; 0 never disables one.
	Failures int `json:"failures"`
}

// Defaults are the limits of a cluster that has set none. A call at all of them
// holds its partition up for about a millisecond.
var Defaults = Limits{
	Steps: 100_000, Bytes: 4 << 20, Depth: 64, Operations: 2000, Keys: 1000, WriteBytes: 1 << 20,
	Events: 64, EventSteps: 2_000_000, Source: 64 << 10, Failures: 10,
}

// ceilings are what no setting goes beyond.
var ceilings = Limits{
	Steps: 100_000_000, Bytes: 1 << 30, Depth: 200, Operations: 1_000_000, Keys: 100_000, WriteBytes: 64 << 20,
	Events: 10_000, EventSteps: 1_000_000_000, Source: 1 << 20, Failures: 1_000_000,
}

// ParseLimits reads the value of [LimitsKey]: a JSON object of the fields that
// differ from the defaults.
func ParseLimits(value []byte) (Limits, error) {
	l := Defaults
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return Limits{}, fmt.Errorf("stoa: %s: %v; give a JSON object such as {\"steps\": 200000}", LimitsKey, err)
	}
	if bytes.TrimSpace(value)[0] != '{' {
		return Limits{}, fmt.Errorf("stoa: %s: give a JSON object such as {\"steps\": 200000}", LimitsKey)
	}
	if _, err := d.Token(); err != io.EOF {
		return Limits{}, fmt.Errorf("stoa: %s: there is more after the JSON object", LimitsKey)
	}
	return l, l.check()
}

func (l *Limits) check() error {
	for _, f := range []struct {
		name        string
		v, min, max int64
	}{
		{"steps", l.Steps, 100, ceilings.Steps},
		{"bytes", l.Bytes, 1 << 10, ceilings.Bytes},
		{"depth", int64(l.Depth), 1, int64(ceilings.Depth)},
		{"operations", int64(l.Operations), 1, int64(ceilings.Operations)},
		{"keys", int64(l.Keys), 0, int64(ceilings.Keys)},
		{"write_bytes", int64(l.WriteBytes), 0, int64(ceilings.WriteBytes)},
		{"events", int64(l.Events), 0, int64(ceilings.Events)},
		{"event_steps", l.EventSteps, 0, ceilings.EventSteps},
		{"source", int64(l.Source), 1, int64(ceilings.Source)},
		{"failures", int64(l.Failures), 0, int64(ceilings.Failures)},
	} {
		if f.v < f.min || f.v > f.max {
			return fmt.Errorf("stoa: %s: %s is %d, want %d to %d", LimitsKey, f.name, f.v, f.min, f.max)
		}
	}
	return nil
}

func (l *Limits) run() script.Limits {
	return script.Limits{Steps: l.Steps, Bytes: l.Bytes, Depth: l.Depth}
}
