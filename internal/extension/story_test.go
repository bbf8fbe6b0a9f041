package extension

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/placement"
)

// The stories in testdata:
//
//	key        what each line stands for
//	name       whether each line can be a name
//	limits     what each line says as the value of /em/.limits
//	standing   each line, read as the value of /em/NAME/state, and what it becomes
//	           when one more call exceeds a limit (failures=N: of how many)
//	compile    the source below: what it subscribes to, or why it is refused
//	registry   the extensions below, one to a line, registered in this order:
//	           NAME [scope=K,K] [OP=K,K] [EVENT=K,K]
//	find       who is concerned by each line: OP KEY [END], EVENT KEY, any KEY [END],
//	           reach NAME
//	remove     the extension named below goes
//	rules      the placement rules, after all registrations and removals so far
//	state      the keys that there are: KEY VALUE [LEASE]
//	handle     run the body below as the handler of op=OP (or of event=EVENT) for
//	           key=K, with value=, client=, lease= and limits (steps=, keys=, …);
//	           with usage, also what it took
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &story{t: t, keys: &model{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "compile":
				return s.compile(d.Input)
			case "registry":
				s.register(d.Input)
				return ""
			case "remove":
				s.reg = s.reg.Without(d.Input)
				return ""
			case "rules":
				return s.rules()
			case "handle":
				return s.handle(d)
			}
			var out strings.Builder
			for line := range strings.SplitSeq(d.Input, "\n") {
				if answer := s.line(d, line); answer != "" {
					fmt.Fprintf(&out, "%s: %s\n", line, answer)
				}
			}
			return out.String()
		})
	})
}

type story struct {
	t    *testing.T
	reg  *Registry
	keys *model

	all    []*Extension // also those that were removed
	placed *placement.Map
	ruled  Ruled
}

func (s *story) line(d *datadriven.TestData, line string) string {
	switch d.Cmd {
	case "key":
		role, name, client := Parse([]byte(line))
		names := [...]string{"outside", "source", "owner", "ack", "ack of", "status", "registrar", "language", "settings", "unknown"}
		return strings.TrimSpace(fmt.Sprintf("%s %s %s", names[role], name, client))
	case "name":
		line, err := strconv.Unquote(line)
		if err == nil {
			err = CheckName(line)
		}
		return verdict("ok", err)
	case "limits":
		l, err := Current.Parse([]byte(line))
		return verdict(fmt.Sprintf("%+v", l), err)
	case "standing":
		l := Defaults
		d.MaybeScanArgs(s.t, "failures", &l.Failures)
		now := ParseStanding([]byte(line))
		return fmt.Sprintf("%s; then %s", now, now.Fail("why", &l))
	case "find":
		return s.find(strings.Fields(line))
	case "state":
		f := append(strings.Fields(line), "0")
		lease, _ := strconv.ParseInt(f[2], 16, 64)
		rev := int64(len(*s.keys) + 2)
		s.keys.set(kvwire.Make([]byte(f[0]), []byte(f[1]), kvwire.Fields{Lease: lease, CreateRevision: rev, ModRevision: rev, Version: 1}))
		return ""
	}
	return "unknown command " + d.Cmd
}

func verdict(ok string, err error) string {
	if err != nil {
		return err.Error()
	}
	return ok
}

func (s *story) compile(source string) string {
	e, err := Compile("x", []byte(source), 7, Defaults)
	var r *Refused
	if errors.As(err, &r) {
		return fmt.Sprintf("%d:%d: %s\n", r.Line, r.Column, r.Reason)
	}
	if err != nil {
		return "not as a refusal: " + err.Error() + "\n"
	}
	return fmt.Sprintf("scope %v\noperations %v\nevents %v\n", e.Scope, e.Operations, e.Events)
}

// register makes extensions by hand, in ascending order.
func (s *story) register(lines string) {
	var list []*Extension
	for i, line := range strings.Split(lines, "\n") {
		f := strings.Fields(line)
		e := &Extension{Name: f[0], Order: int64(i + 2)}
		for _, field := range f[1:] {
			kind, patterns, _ := strings.Cut(field, "=")
			for p := range strings.SplitSeq(patterns, ",") {
				op, isOp := opNamed(kind)
				event, isEvent := eventNamed(kind)
				switch {
				case isOp:
					e.Operations = append(e.Operations, OpSubscription{op, Pattern(p)})
				case isEvent:
					e.Events = append(e.Events, EventSubscription{event, Pattern(p)})
				default:
					e.Scope = append(e.Scope, Pattern(p))
				}
			}
		}
		list = append(list, e)
	}
	s.reg, s.all = New(Defaults, list), list
	s.forget()
}

func (s *story) find(f []string) string {
	f = append(f, "")
	kind, key, end := f[0], []byte(f[1]), []byte(f[2])
	if f[2] == `\0` {
		end = []byte{0}
	}
	var found []*Extension
	op, isOp := opNamed(kind)
	event, isEvent := eventNamed(kind)
	switch {
	case isOp:
		found = s.reg.Operation(op, key, end)
	case isEvent:
		found = s.reg.Events(event, key)
	case kind == "reach":
		found = s.reg.Reach(s.reg.Get(f[1])).Extensions
	default:
		found = slices.Collect(s.reg.EventsIn(key, end))
	}
	names := namesOf(found)
	if kind == "any" || kind == "reach" { // in no particular order
		slices.Sort(names)
		names = slices.Compact(names)
	}
	if len(names) == 0 {
		return "nobody"
	}
	return strings.Join(names, " ")
}

func namesOf(list []*Extension) []string {
	names := make([]string, len(list))
	for i, e := range list {
		names[i] = e.Name
	}
	return names
}

// rules shows of each rule with whose home it puts its keys together.
func (s *story) rules() string {
	s.placed, s.ruled = s.reg.Place(s.placed, s.ruled)
	homes := map[int]string{}
	for _, e := range s.all {
		homes[placement.HashSlot(Home(e.Name))] = e.Name
	}
	var out strings.Builder
	for _, r := range s.placed.Rules() {
		fmt.Fprintf(&out, "%s with %s\n", r.Key, homes[r.Slot])
	}
	return out.String()
}

// forget makes the placement map anew.
func (s *story) forget() {
	s.placed = placement.New(8)
	s.ruled = RuledBy(s.placed)
}

func (s *story) handle(d *datadriven.TestData) string {
	l := Defaults
	op, event, key, value, client, lease := "read", "", "/k/a", "", "alice", int64(0)
	for name, to := range map[string]any{
		"steps": &l.Steps, "bytes": &l.Bytes, "operations": &l.Operations, "keys": &l.Keys, "write_bytes": &l.WriteBytes,
		"op": &op, "event": &event, "key": &key, "value": &value, "client": &client, "lease": &lease,
	} {
		d.MaybeScanArgs(s.t, name, to)
	}
	subscription, handler := fmt.Sprintf(`operations = { { op = %q, prefix = "/k/" } }`, op), op
	if event != "" {
		subscription, handler = fmt.Sprintf(`events = { { event = %q, prefix = "/k/" } }`, event), "event"
	}
	source := fmt.Sprintf("return { scope = { \"/k/\", \"/one\" }, %s, %s = function(request)\n%s\nend }", subscription, handler, d.Input)
	e, err := Compile("x", []byte(source), 7, l)
	if err != nil {
		return err.Error() + "\n"
	}
	if event != "" {
		t, _ := eventNamed(event)
		ev := &Event{Type: t, Kv: kvwire.Make([]byte(key), []byte(value), kvwire.Fields{CreateRevision: 9, ModRevision: 9, Version: 1}), Client: client}
		if t != Created {
			ev.Prev = s.keys.Get([]byte(key))
		}
		return s.outcome(d)(e.Event(s.keys, &l, 9, ev, nil))
	}
	o, _ := opNamed(op)
	return s.outcome(d)(e.Operation(s.keys, &l, 9, &Request{Op: o, Key: []byte(key), Value: []byte(value), Client: client, Lease: lease, StartRevision: 3}, nil))
}

// outcome formats what a call came to, and what it took if the command has usage.
func (s *story) outcome(d *datadriven.TestData) func(*Outcome, error) string {
	return func(out *Outcome, err error) string {
		text := formatOutcome(out, err)
		if d.HasArg("usage") {
			text += fmt.Sprintf("%d steps, %d bytes, %d operations\n", out.Usage.Steps, out.Usage.Bytes, out.Operations)
		}
		return text
	}
}

func formatOutcome(out *Outcome, err error) string {
	var b strings.Builder
	if err != nil {
		limit := ""
		if errors.Is(err, fault.ExtensionLimit) {
			limit = "limit: "
		}
		fmt.Fprintf(&b, "%s%v\n", limit, err)
	}
	for _, kv := range out.Kvs {
		fmt.Fprintf(&b, "answer %s=%q created %d modified %d version %d lease %x\n", kv.Key, kv.Value, kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease)
	}
	if out.Deleted != 0 || out.Succeeded {
		fmt.Fprintf(&b, "deleted %d, succeeded %v\n", out.Deleted, out.Succeeded)
	}
	if out.Block != nil {
		fmt.Fprintf(&b, "waits for %s\n", out.Block)
	}
	for _, w := range out.Writes {
		if w.Delete {
			fmt.Fprintf(&b, "delete %s\n", w.Key)
		} else {
			fmt.Fprintf(&b, "put %s=%q lease %x\n", w.Key, w.Kv.Value(), w.Kv.Lease())
		}
	}
	for _, n := range out.Notices {
		fmt.Fprintf(&b, "notify %s=%q\n", n.Key, n.Value)
	}
	if out.Suppress {
		b.WriteString("suppressed\n")
	}
	for _, line := range out.Log {
		fmt.Fprintf(&b, "log %q\n", line)
	}
	fmt.Fprintf(&b, "%d operations\n", out.Operations)
	return b.String()
}
