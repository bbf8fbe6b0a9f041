package node

import (
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/stoa-kv/stoa/internal/replica"
	"github.com/stoa-kv/stoa/internal/tracing"
)

// way makes spans of the steps of a write, under that of its request.
type way struct {
	under *tracing.Span

	mu      sync.Mutex
	at      [replica.Steps]time.Time // the last time of each step
	forward *tracing.Span            // while another server has the write
}

// follow returns nil if the request isn't sampled.
func follow(under *tracing.Span) *replica.Trace {
	if under == nil {
		return nil
	}
	w := &way{under: under}
	return &replica.Trace{Reached: w.reached, Wire: w.wire}
}

// parts are the spans that end with a step: their names, and the steps with which they begin.
var parts = map[replica.Step]struct {
	name  string
	since replica.Step
}{
	replica.Stamped:   {"sequencer", replica.Accepted},
	replica.Logged:    {"log", replica.Stamped},
	replica.Committed: {"replication", replica.Stamped},
	replica.Applied:   {"apply", replica.Committed},
	replica.Reflected: {"apply", replica.Answered},
}

func (w *way) reached(step replica.Step, partition int) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at[step] = now
	switch step {
	case replica.Forwarded:
		w.forward = w.under.Child("forward")
	case replica.Answered:
		w.forward.Done()
	case replica.Applied, replica.Reflected:
		w.under.Answering(now)
	}
	if p, ok := parts[step]; ok && !w.at[p.since].IsZero() {
		w.under.Part(p.name, w.at[p.since], now, attribute.Int("stoa.partition", partition))
	}
}

func (w *way) wire() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.forward.Wire()
}
