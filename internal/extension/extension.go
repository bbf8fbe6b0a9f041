package extension

import (
	"errors"
	"fmt"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/script"
)

// Extension is one registered program. Immutable.
type Extension struct {
	Name string
	// Order is the revision of the registration: of several extensions that match a
	// request the one with the highest runs, events go in ascending order (§3.3).
	Order int64
	Code
	Costs *Costs

	owner, state []byte // the keys, for every call
}

// OwnerKey and StateKey are the extension's keys, not to be written to.
func (e *Extension) OwnerKey() []byte { return e.owner }
func (e *Extension) StateKey() []byte { return e.state }

// Compile verifies and loads a source, as the extension name registered at
// revision order. The error is a [fault.BadExtension], as a [Refused] if it is in the
// source.
func Compile(name string, source []byte, order int64, l Limits) (*Extension, error) {
	if err := CheckName(name); err != nil {
		return nil, fault.BadExtension.With(err.Error())
	}
	if err := l.AdmitSource(name, len(source)); err != nil {
		return nil, err
	}
	code, err := CompileCode(Language, source)
	if err != nil {
		return nil, Refuse(name, err)
	}
	e := code.As(name, order)
	return e, l.admit(e)
}

// Refused is why a source was not accepted. Line and Column are 0 where the reason
// has no place.
type Refused struct {
	*fault.Detail
	Line, Column int
	Reason       string
}

func (r *Refused) Unwrap() error { return r.Detail }

// Refuse says that a source can't be the extension name's.
func Refuse(name string, err error) error {
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

func (c *Code) subscribes(op Op) bool {
	for _, s := range c.Operations {
		if s.Op == op {
			return true
		}
	}
	return false
}

// Sees are the keys that a run of a handler may show: those of the scope, and those of the requests that come to it.
func (c *Code) Sees() []Pattern {
	list := c.Scope
	for _, o := range c.Operations {
		if !c.inScope(string(o.Pattern)) {
			list = append(list[:len(list):len(list)], o.Pattern)
		}
	}
	return list
}

// inScope tells whether a key, or a prefix with everything below it, is within
// reach of the extension.
func (c *Code) inScope(key string) bool {
	for _, p := range c.Scope {
		if p.Covers(key) {
			return true
		}
	}
	return false
}
