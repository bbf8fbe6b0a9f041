package extension

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/script"
)

// Extension is one registered program. Immutable.
type Extension struct {
	Name string
	// Order is the revision of the registration: of several extensions that match a
	// request the one with the highest runs, events go in ascending order (§3.3).
	Order      int64
	Scope      []Pattern
	Operations []OpSubscription
	Events     []EventSubscription
	// Loading is what running the top level of the file took.
	Loading script.Usage

	owner, state []byte // the keys, for every call

	module   *script.Module
	handlers [ops]script.Value
	onEvent  script.Value
	limits   Limits
}

// OwnerKey and StateKey are the extension's keys, not to be written to.
func (e *Extension) OwnerKey() []byte { return e.owner }
func (e *Extension) StateKey() []byte { return e.state }

// maxSubscriptions bounds the lists of a file.
const maxSubscriptions = 100

// Compile verifies and loads a source, as the extension name registered at
// revision order. The error is a [fault.BadExtension], as a [Refused] if the source
// is to blame.
func Compile(name string, source []byte, order int64, l Limits) (*Extension, error) {
	if err := CheckName(name); err != nil {
		return nil, fault.BadExtension.With(err.Error())
	}
	program, err := script.Compile(source, host, script.Bounds{Source: l.Source})
	if err != nil {
		return nil, refused(name, err)
	}
	e := &Extension{Name: name, Order: order, limits: l, owner: OwnerKey(name), state: StateKey(name)}
	if e.module, e.Loading, err = program.Load(l.run()); err != nil {
		return nil, refused(name, err)
	}
	if err := e.read(e.module.Export()); err != nil {
		return nil, refused(name, err)
	}
	return e, nil
}

// Refused is why a source was not accepted. Line and Column are 0 where the reason
// has no place.
type Refused struct {
	*fault.Detail
	Line, Column int
	Reason       string
}

func (r *Refused) Unwrap() error { return r.Detail }

func refused(name string, err error) error {
	r := &Refused{Detail: fault.BadExtension.With(describe(name, err)), Reason: err.Error()}
	var s *script.Error
	if errors.As(err, &s) {
		r.Line, r.Column, r.Reason = s.Line, s.Column, s.Reason
	}
	return r
}

// describe is the text of an error for the client.
func describe(name string, err error) string {
	var s *script.Error
	switch {
	case !errors.As(err, &s):
		return fmt.Sprintf("stoa: extension %q: %v", name, err)
	case s.Column > 0:
		return fmt.Sprintf("stoa: extension %q: line %d, column %d: %s", name, s.Line, s.Column, s.Reason)
	case s.Line > 0:
		return fmt.Sprintf("stoa: extension %q: line %d: %s", name, s.Line, s.Reason)
	}
	return fmt.Sprintf("stoa: extension %q: %s", name, s.Reason)
}

// read takes what the file returned.
func (e *Extension) read(exported script.Value) error {
	t, ok := exported.AsTable()
	if !ok {
		return errors.New(`the file must end with: return { scope = {…}, operations = {…}, … }`)
	}
	for key := range t.All() {
		name, ok := key.AsString()
		if !ok || !known(name) {
			return fmt.Errorf("the returned table has a field %s; known are scope, operations, events, read, put, delete, txn, block, event", shown(key))
		}
	}
	if err := e.readScope(t.Field("scope")); err != nil {
		return err
	}
	if err := e.readOperations(t.Field("operations")); err != nil {
		return err
	}
	if err := e.readEvents(t.Field("events")); err != nil {
		return err
	}
	if len(e.Operations)+len(e.Events) == 0 {
		return errors.New(`the extension subscribes to nothing: give it operations = { { op = "read", key = "/…" } } or events = { { event = "deleted", prefix = "/…/" } }`)
	}
	return e.readHandlers(t)
}

func known(field string) bool {
	switch field {
	case "scope", "operations", "events", "event":
		return true
	}
	_, ok := opNamed(field)
	return ok
}

func opNamed(name string) (Op, bool) {
	for op, n := range opNames {
		if n == name {
			return Op(op), true
		}
	}
	return 0, false
}

func eventNamed(name string) (EventType, bool) {
	for t, n := range eventNames {
		if n == name {
			return EventType(t), true
		}
	}
	return 0, false
}

// isList tells whether a table has nothing but elements.
func isList(t *script.Table) bool {
	n := 0
	for range t.All() {
		n++
	}
	return n == t.Len()
}

// shown is a key of a table for an error.
func shown(v script.Value) string {
	text, err := plain(v)
	if err != nil {
		return "that is a " + v.Kind().String()
	}
	return strconv.Quote(string(text))
}

// elements returns the elements of a list, none for nil.
func elements(v script.Value, what string) ([]script.Value, error) {
	if v.IsNil() {
		return nil, nil
	}
	t, ok := v.AsTable()
	if !ok || !isList(t) {
		return nil, fmt.Errorf("%s must be a list: %s = { …, … }", what, what)
	}
	if t.Len() > maxSubscriptions {
		return nil, fmt.Errorf("%s has %d elements, %d are allowed", what, t.Len(), maxSubscriptions)
	}
	list := make([]script.Value, t.Len())
	for i := range list {
		list[i] = t.Index(i + 1)
	}
	return list, nil
}

func (e *Extension) readScope(v script.Value) error {
	list, err := elements(v, "scope")
	if err != nil {
		return err
	}
	for _, v := range list {
		s, ok := v.AsString()
		if !ok {
			return errors.New(`scope must be a list of keys, and of prefixes that end in "/": scope = { "/ctr", "/queue/" }`)
		}
		p, err := checkPattern(s)
		if err != nil {
			return fmt.Errorf("scope: %w", err)
		}
		e.Scope = append(e.Scope, p)
	}
	return nil
}

// subscription reads { kind = "…", key = "…" } or { kind = "…", prefix = "…/" }.
func subscription(v script.Value, list, kind string) (name string, p Pattern, err error) {
	t, ok := v.AsTable()
	if !ok {
		return "", "", fmt.Errorf("%s must be a list of tables: { %s = \"…\", key = \"…\" }", list, kind)
	}
	for k := range t.All() {
		if s, _ := k.AsString(); s != kind && s != "key" && s != "prefix" {
			return "", "", fmt.Errorf("%s: an element has a field %s; known are %s, key, prefix", list, shown(k), kind)
		}
	}
	name, _ = t.Field(kind).AsString()
	key, isKey := t.Field("key").AsString()
	prefix, isPrefix := t.Field("prefix").AsString()
	switch {
	case isKey == isPrefix:
		return "", "", fmt.Errorf("%s: give each element either key = \"…\" or prefix = \"…/\"", list)
	case isPrefix && !Pattern(prefix).IsPrefix():
		return "", "", fmt.Errorf("%s: prefix %q must end in \"/\"", list, prefix)
	case isKey && Pattern(key).IsPrefix():
		return "", "", fmt.Errorf("%s: key %q ends in \"/\"; write prefix = %q to mean what lies below it", list, key, key)
	}
	if p, err = checkPattern(key + prefix); err != nil {
		err = fmt.Errorf("%s: %w", list, err)
	}
	return name, p, err
}

func (e *Extension) readOperations(v script.Value) error {
	list, err := elements(v, "operations")
	if err != nil {
		return err
	}
	for _, v := range list {
		name, p, err := subscription(v, "operations", "op")
		if err != nil {
			return err
		}
		op, ok := opNamed(name)
		if !ok {
			return fmt.Errorf("operations: op %q is not known; there are read, put, delete, txn, block", name)
		}
		e.Operations = append(e.Operations, OpSubscription{op, p})
	}
	return nil
}

func (e *Extension) readEvents(v script.Value) error {
	list, err := elements(v, "events")
	if err != nil {
		return err
	}
	for _, v := range list {
		name, p, err := subscription(v, "events", "event")
		if err != nil {
			return err
		}
		t, ok := eventNamed(name)
		if !ok {
			return fmt.Errorf("events: event %q is not known; there are created, modified, deleted, expired", name)
		}
		if !e.inScope(string(p)) {
			return fmt.Errorf("events: %q is outside the extension's scope; add it to scope = {…}", p)
		}
		e.Events = append(e.Events, EventSubscription{t, p})
	}
	return nil
}

// readHandlers wants a handler for every kind of subscription, and no other.
func (e *Extension) readHandlers(t *script.Table) error {
	for op := range ops {
		v := t.Field(op.String())
		subscribed := e.subscribes(op)
		switch {
		case v.IsNil() && subscribed:
			return fmt.Errorf("a %s is subscribed to, but there is no handler: %s = function(request) … end", op, op)
		case v.IsNil():
			continue
		case !e.module.Callable(v):
			return fmt.Errorf("%s must be a function of this file", op)
		case !subscribed:
			return fmt.Errorf("there is a handler %s, but operations has no { op = %q, … }", op, op.String())
		}
		e.handlers[op] = v
	}
	v := t.Field("event")
	switch {
	case v.IsNil() && len(e.Events) > 0:
		return errors.New("events are subscribed to, but there is no handler: event = function(event) … end")
	case !v.IsNil() && !e.module.Callable(v):
		return errors.New("event must be a function of this file")
	case !v.IsNil() && len(e.Events) == 0:
		return errors.New("there is a handler event, but events is empty")
	}
	e.onEvent = v
	return nil
}

func (e *Extension) subscribes(op Op) bool {
	for _, s := range e.Operations {
		if s.Op == op {
			return true
		}
	}
	return false
}

func (e *Extension) handlesRange(op Op, key, end []byte) bool {
	for _, s := range e.Operations {
		if s.Op == op && s.Pattern.holds(key, end) {
			return true
		}
	}
	return false
}

// inScope tells whether a key, or a prefix with everything below it, is within
// reach of the extension.
func (e *Extension) inScope(key string) bool {
	for _, p := range e.Scope {
		if p.Covers(key) {
			return true
		}
	}
	return false
}
