package rehearsal

import (
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/script"
	"github.com/stoa-kv/stoa/internal/store"
)

// Report is the outcome of a request.
type Report struct {
	// Handler is the extension that handled the request, "" if none did.
	Handler  string
	Response proto.Message // etcd's; nil after an error
	Err      error

	Runs    []Run    // of handlers, in the order in which they ran
	Changes []Change // of keys, in the order in which they were made
	Events  []Event  // that reached watches
	Watch   int      // the number of the watch that was opened
}

// Run is one call of a handler.
type Run struct {
	Extension string
	// Handler is an operation or an event type, and Key the key that it was called for;
	// both are "" of a run that the limit on events has prevented.
	Handler, Key string
	Steps, Bytes int64
	Operations   int
	Log          []string // the lines that it wrote with log
	Err          error
}

// Change is a key that was written, or a notice that a handler has sent.
type Change struct{ store.Change }

// Notice tells whether the change is only an event: no key was written.
func (c *Change) Notice() bool { return !c.Delete && c.Kv.Version() == 0 }

// Hidden tells whether an extension keeps the change from the watches of its
// clients.
func (c *Change) Hidden() bool { return c.Hides != nil }

// Event is a change that reached a watch.
type Event struct {
	Watch int // from 1, in the order of opening
	Change
}

// witness records the machine's calls of its observer and sink.
type witness struct{ r *Rehearsal }

// Changes implements apply.Sink.
func (w witness) Changes(_ int, _ int64, changes []store.Change) {
	for _, c := range changes {
		w.r.report.Changes = append(w.r.report.Changes, Change{c})
	}
}

// Now implements apply.Meter: time is no part of a rehearsal.
func (w witness) Now() int64 { return 0 }

// Profile implements apply.Meter.
func (w witness) Profile(name string) *script.Profile {
	p := w.r.profiles
	if p != nil && p[name] == nil {
		p[name] = &script.Profile{}
	}
	return p[name]
}

// Undone implements apply.Meter: the request's error says it.
func (w witness) Undone(string, int64, error) {}

// Applied implements apply.Meter.
func (w witness) Applied(*command.Entry, apply.Tally, int64) {}

func (witness) Sampled(*placement.Spot, int64) {}

// Called implements apply.Meter.
func (w witness) Called(name string, _ int64, out *extension.Outcome, err error) {
	w.r.report.Runs = append(w.r.report.Runs, Run{
		Extension: name, Handler: out.Handler, Key: string(out.Key),
		Steps: out.Usage.Steps, Bytes: out.Usage.Bytes, Operations: out.Operations, Log: out.Log, Err: err,
	})
}
