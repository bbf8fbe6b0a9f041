package extension

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"

	"github.com/stoa-kv/stoa/internal/script"
)

// Code is a source that has been verified, compiled and loaded. Immutable. It is a
// function of the source alone: it depends neither on the limits of a cluster nor on its
// name or revision, so that it can be compiled before its registration is committed, and
// stays when the limits change.
type Code struct {
	Scope      []Pattern
	Operations []OpSubscription
	Events     []EventSubscription
	// Strict says that writes of the keys which operations name are refused to clients
	// that may not use the extension, instead of being taken for ordinary ones.
	Strict bool
	// Of is the source and its language.
	Of SourceID
	// Source is the size of the source, Memory the memory that the extension takes while
	// it is registered; both in bytes.
	Source int
	Memory int64
	// Loading is the usage of running the top level of the file.
	Loading script.Usage

	module   *script.Module
	handlers [ops]script.Value
	onEvent  script.Value
}

// SourceID tells sources in their languages apart.
type SourceID struct {
	language int
	sum      [sha256.Size]byte
}

// SourceOf is the id of a source.
func SourceOf(language int, source []byte) SourceID {
	return SourceID{language, sha256.Sum256(source)}
}

// Loading limits running the top level of a file. It is a part of the language's
// version: a source that was loaded once can always be loaded.
var Loading = script.Limits{Steps: 100_000, Bytes: 4 << 20, Depth: 64}

// maxSubscriptions bounds the lists of a file.
const maxSubscriptions = 100

// Language is the version of the language that this package compiles new extensions
// for, and Oldest the first that it still knows: an extension that was registered
// for a version keeps its semantics for as long as it is registered.
const (
	Language = script.Version
	Oldest   = script.Oldest
)

// CheckLanguage refuses a version of the language that this package doesn't know.
func CheckLanguage(name string, version int) error {
	if version >= Oldest && version <= Language {
		return nil
	}
	return fmt.Errorf("the extension %q is registered for version %d of the language of extensions, and this release of stoa knows %d to %d: "+
		"start this server with the release that the others run", name, version, Oldest, Language)
}

// CompileCode verifies, compiles and loads a source in a version of the language that
// this package knows.
func CompileCode(language int, source []byte) (*Code, error) {
	return CompilePaced(language, source, nil)
}

// CompilePaced is [CompileCode], and calls pause every few hundred microseconds, unless it is
// nil.
func CompilePaced(language int, source []byte, pause func()) (*Code, error) {
	program, err := script.Compile(source, host, script.Bounds{Source: Current.Ceilings.Source, Handlers: handlers, Pause: pause})
	if err != nil {
		return nil, err
	}
	c := &Code{Of: SourceOf(language, source), Source: len(source)}
	if c.module, c.Loading, err = program.Load(Loading); err != nil {
		return nil, err
	}
	if err := c.read(c.module.Export()); err != nil {
		return nil, err
	}
	kept, err := c.module.Keep(Current.Ceilings.Memory, append(c.handlers[:], c.onEvent)...)
	c.Memory = kept + c.indexed()
	return c, err
}

// As is the extension that the code is when it is registered as name at revision order.
func (c *Code) As(name string, order int64) *Extension {
	return &Extension{Name: name, Order: order, Code: *c, Costs: new(Costs), owner: OwnerKey(name), state: StateKey(name)}
}

// read takes the file's return value.
func (c *Code) read(exported script.Value) error {
	t, ok := exported.AsTable()
	if !ok {
		return errors.New(`the file must end with: return { scope = {…}, operations = {…}, … }`)
	}
	for key := range t.All() {
		name, ok := key.AsString()
		if !ok || !known(name) {
			return fmt.Errorf("the returned table has a field %s; known are scope, operations, events, strict, read, put, delete, txn, block, event", shown(key))
		}
	}
	if err := c.readScope(t.Field("scope")); err != nil {
		return err
	}
	if err := c.readOperations(t.Field("operations")); err != nil {
		return err
	}
	if err := c.readEvents(t.Field("events")); err != nil {
		return err
	}
	if err := c.readStrict(t.Field("strict")); err != nil {
		return err
	}
	if len(c.Operations)+len(c.Events) == 0 {
		return errors.New(`the extension subscribes to nothing: give it operations = { { op = "read", key = "/…" } } or events = { { event = "deleted", prefix = "/…/" } }`)
	}
	return c.readHandlers(t)
}

func known(field string) bool {
	switch field {
	case "scope", "operations", "events", "event", "strict":
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

func (c *Code) readScope(v script.Value) error {
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
		c.Scope = append(c.Scope, p)
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

func (c *Code) readOperations(v script.Value) error {
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
		c.Operations = append(c.Operations, OpSubscription{op, p})
	}
	return nil
}

func (c *Code) readEvents(v script.Value) error {
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
		if !c.inScope(string(p)) {
			return fmt.Errorf("events: %q is outside the extension's scope; add it to scope = {…}", p)
		}
		c.Events = append(c.Events, EventSubscription{t, p})
	}
	return nil
}

func (c *Code) readStrict(v script.Value) error {
	if v.IsNil() {
		return nil
	}
	var ok bool
	if c.Strict, ok = v.AsBool(); !ok {
		return errors.New("strict must be true or false")
	}
	if c.Strict && len(c.Operations) == 0 {
		return errors.New("strict is about the keys that operations name, and operations is empty")
	}
	return nil
}

// readHandlers requires a handler for every kind of subscription, and refuses all others.
func (c *Code) readHandlers(t *script.Table) error {
	for op := range ops {
		v := t.Field(op.String())
		subscribed := c.subscribes(op)
		switch {
		case v.IsNil() && subscribed:
			return fmt.Errorf("a %s is subscribed to, but there is no handler: %s = function(request) … end", op, op)
		case v.IsNil():
			continue
		case !c.module.Callable(v):
			return fmt.Errorf("%s must be a function of this file", op)
		case !subscribed:
			return fmt.Errorf("there is a handler %s, but operations has no { op = %q, … }", op, op.String())
		}
		c.handlers[op] = v
	}
	v := t.Field("event")
	switch {
	case v.IsNil() && len(c.Events) > 0:
		return errors.New("events are subscribed to, but there is no handler: event = function(event) … end")
	case !v.IsNil() && !c.module.Callable(v):
		return errors.New("event must be a function of this file")
	case !v.IsNil() && len(c.Events) == 0:
		return errors.New("there is a handler event, but events is empty")
	}
	c.onEvent = v
	return nil
}
