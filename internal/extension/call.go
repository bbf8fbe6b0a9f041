package extension

import (
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/script"
)

// Request is the argument of an operation handler.
type Request struct {
	Op                   Op
	Key, RangeEnd, Value []byte
	Lease, Limit         int64
	Client               string
	// StartRevision is that of a watch which a client opens again.
	StartRevision int64
}

// Event is the argument of an event handler.
type Event struct {
	Type   EventType
	Kv     kvwire.KeyValue // of a deletion a tombstone
	Prev   kvwire.KeyValue // none if there was none
	Client string          // whose request caused it, "" if no client's
}

// Notice is an event that is sent to watchers without a key being written.
type Notice struct{ Key, Value []byte }

// Outcome is the result of a call.
type Outcome struct {
	Writes  []Write
	Notices []Notice

	// The revision of the call, the handler, the key it was called for and its usage: set
	// also after an error.
	Rev        int64
	Handler    string // "read" …, or "created" …
	Key        []byte
	Usage      script.Usage
	Operations int      // on keys
	Log        []string // the lines of log: never of the state, nor replicated

	// Of an operation: the key-values to answer with (of revision 0 where the handler
	// names none), how many keys a delete
	// removed, whether a transaction succeeded.
	Kvs       []*mvccpb.KeyValue
	Deleted   int64
	Succeeded bool
	// Block is the key whose creation the client waits for, nil for none.
	Block []byte

	// Of an event: it is kept from the clients that use the extension.
	Suppress bool
}

// TakesSpace reports whether the writes are refused while the alarm NOSPACE is active.
func (o *Outcome) TakesSpace() bool {
	return slices.ContainsFunc(o.Writes, func(w Write) bool { return !w.Delete })
}

// call is one running handler, the host of its script.
type call struct {
	e       *Extension
	limits  *Limits
	keys    overlay
	client  string
	lease   int64 // the request's, for monitor
	block   bool  // block is allowed
	event   bool  // suppress is allowed
	used    int   // operations on keys
	notices []Notice
	waitFor []byte
	hidden  bool
	lines   []string // of log
	denied  bool     // an operation that the user has no permission for was attempted
}

// Operation runs the extension instead of a request, within limits, as of revision rev, and
// counts its steps in p unless that is nil. The error is a [fault.ExtensionFailed] or
// [fault.ExtensionLimit], or fault.PermissionDenied.
func (e *Extension) Operation(s State, l *Limits, rev int64, r *Request, p *script.Profile) (*Outcome, error) {
	c := &call{e: e, limits: l, keys: overlay{base: s, rev: rev}, client: r.Client, lease: r.Lease, block: r.Op == Block}
	v, used, err := e.module.Profiled(p, e.handlers[r.Op], []script.Value{r.table(rev)}, l.run(), c)
	out := &Outcome{Rev: rev, Handler: r.Op.String(), Key: r.Key, Usage: used, Operations: c.used, Log: c.lines}
	if err == nil {
		err = out.answer(r, v, c)
	}
	return out, c.finish(out, err)
}

// Event runs the extension after a change, like Operation.
func (e *Extension) Event(s State, l *Limits, rev int64, ev *Event, p *script.Profile) (*Outcome, error) {
	c := &call{e: e, limits: l, keys: overlay{base: s, rev: rev}, client: ev.Client, event: true}
	c.lease = ev.Prev.Lease()
	_, used, err := e.module.Profiled(p, e.onEvent, []script.Value{ev.table(rev)}, l.run(), c)
	out := &Outcome{Rev: rev, Handler: ev.Type.String(), Key: ev.Kv.Key(), Usage: used, Operations: c.used, Log: c.lines}
	return out, c.finish(out, err)
}

// finish completes an outcome, or empties it (invariant 2).
func (c *call) finish(out *Outcome, err error) error {
	if c.denied {
		err = fault.PermissionDenied
	}
	if err == nil {
		out.Writes, out.Notices = c.keys.result(), c.notices
		out.Block, out.Suppress = c.waitFor, c.hidden
		return nil
	}
	*out = Outcome{Rev: out.Rev, Handler: out.Handler, Key: out.Key, Usage: out.Usage, Operations: out.Operations, Log: out.Log}
	if c.denied {
		return err
	}
	f := fault.ExtensionFailed
	var s *script.Error
	if errors.As(err, &s) && s.Limit {
		f = fault.ExtensionLimit
	}
	return f.With(describe(c.e.Name, err))
}

func (r *Request) table(rev int64) script.Value {
	return script.Record(requestShape,
		script.Field{Name: "key", Value: text(r.Key)},
		script.Field{Name: "value", Value: text(r.Value)},
		script.Field{Name: "op", Value: script.String(r.Op.String())},
		script.Field{Name: "range_end", Value: text(r.RangeEnd)},
		script.Field{Name: "lease", Value: script.Int(r.Lease)},
		script.Field{Name: "limit", Value: script.Int(r.Limit)},
		script.Field{Name: "client", Value: script.String(r.Client)},
		script.Field{Name: "start_revision", Value: script.Int(r.StartRevision)},
		script.Field{Name: "revision", Value: script.Int(rev)},
	)
}

// text is a string that is never written to again: requests and key-values aren't.
func text(b []byte) script.Value { return script.Bytes(b) }

func (ev *Event) table(rev int64) script.Value {
	fields := append(make([]script.Field, 0, 9),
		script.Field{Name: "type", Value: script.String(ev.Type.String())},
		script.Field{Name: "key", Value: text(ev.Kv.Key())},
		script.Field{Name: "client", Value: script.String(ev.Client)},
		script.Field{Name: "revision", Value: script.Int(rev)},
	)
	kv := ev.Kv // of a key that is gone, the last that was known
	if ev.Type == Created || ev.Type == Modified {
		fields = append(fields, script.Field{Name: "value", Value: text(kv.Value())})
	} else {
		kv = ev.Prev
	}
	if kv.Exists() {
		fields = append(fields,
			script.Field{Name: "lease", Value: script.Int(kv.Lease())},
			script.Field{Name: "version", Value: script.Int(kv.Version())},
			script.Field{Name: "create_revision", Value: script.Int(kv.CreateRevision())})
	}
	if ev.Prev.Exists() {
		fields = append(fields, script.Field{Name: "prev_value", Value: text(ev.Prev.Value())})
	}
	return script.Record(eventShape, fields...)
}
