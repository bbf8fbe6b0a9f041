package script

import (
	"fmt"
	"math/bits"
)

// Call is one run of a script: of the file, or of a function of it. Host
// functions get it to charge for their work and to create tables.
type Call struct {
	// The unused rest of the limits. It is charged before the work is done, and the
	// run ends when it would go below zero. The steps of a profiled call are lower by a
	// constant (profile.go).
	steps, bytes int64

	limits  Limits
	host    any
	loading bool
	ended   *Error // the error of a limit that a host function got; it can't be swallowed
	at      position
	inside  *Function // the host function that is running, called at that place
	depth   int
	deepest int
	frames  []*frame
	profile profiling
}

// frame has one function's locals, and the intermediate values of its expressions.
type frame struct {
	call   *Call
	fn     *closure
	slots  []Value
	result Value
	paid   int // one more than the slots that this run was charged for; 0 before
}

// closure is a function value.
type closure struct {
	native *Function // a builtin or host function; otherwise:
	code   *code
	bound  []upvalue
	loaded bool // made while the file was loaded
}

// upvalue is a variable of an outer function: its value, or the cell that it
// lives in if it can still change.
type upvalue struct {
	value Value
	cell  *cell
}

// cell holds a variable that two functions share. One created while the file
// was loaded is read-only afterwards, since all calls share it.
type cell struct {
	value  Value
	loaded bool
}

// code is a compiled function.
type code struct {
	at     position
	params int
	boxed  []int // parameters that live in cells
	slots  int
	body   block
}

// outOfSteps handles a charge that has made the steps negative.
func (c *Call) outOfSteps(at position) {
	if c.profiled(at) {
		return
	}
	c.steps = 0
	c.overLimit(at, "more than %d steps", c.limits.Steps)
}

func (c *Call) overLimit(at position, format string, limit int64) {
	c.ended = &Error{Line: int(at.line), Column: int(at.column), Reason: fmt.Sprintf(format, limit), Limit: true}
	panic(failure{c.ended})
}

// usage is the usage so far.
func (c *Call) usage() Usage {
	return Usage{Steps: c.limits.Steps - (c.steps + c.profile.bias), Bytes: c.limits.Bytes - c.bytes}
}

// enter makes the frame of a function that is called.
func (c *Call) enter(fn *closure, at position) *frame {
	if c.depth >= c.limits.Depth {
		c.overLimit(at, "calls nested more than %d deep", int64(c.limits.Depth))
	}
	c.depth++
	if c.depth > len(c.frames) {
		c.frames = append(c.frames, &frame{call: c})
	}
	c.deepest = max(c.deepest, c.depth)
	f, n := c.frames[c.depth-1], fn.code.slots
	if n >= f.paid {
		cost := int64(n+1-f.paid) * slotBytes
		if f.paid == 0 {
			cost += frameBytes
		}
		c.allocate(cost, at)
		f.paid = n + 1
	}
	if n > len(f.slots) {
		f.slots = make([]Value, 1<<bits.Len(uint(n-1))) // so that growing bit by bit is no waste
	}
	f.fn = fn
	return f
}

// invoke calls fn with arguments that lie in the caller's frame.
func (c *Call) invoke(fn *closure, args []Value, at position) Value {
	if fn.native != nil {
		return c.native(fn.native, args, at)
	}
	f := c.enter(fn, at)
	p := fn.code
	n := copy(f.slots[:p.params], args)
	clear(f.slots[n:p.params])
	for _, i := range p.boxed {
		f.slots[i] = c.box(f.slots[i], at)
	}
	f.result = Value{}
	p.body.run(f)
	c.depth--
	return f.result
}

func (c *Call) box(v Value, at position) Value {
	c.allocate(cellBytes, at)
	return cellValue(&cell{value: v, loaded: c.loading})
}

// native calls a builtin or host function, whose arguments have been counted.
func (c *Call) native(fn *Function, args []Value, at position) Value {
	if fn.builtin == nil && c.loading {
		fail(at, "%s can only be called inside a handler", fn.Name)
	}
	c.at = at
	if fn.builtin != nil {
		return fn.builtin(c, args)
	}
	c.inside = fn
	v, err := fn.Do(c, args)
	c.inside = nil
	if c.ended != nil {
		panic(failure{c.ended})
	}
	if err != nil {
		panic(failure{hostError(err, at)})
	}
	return v
}

func hostError(err error, at position) *Error {
	e, ok := err.(*Error)
	if !ok {
		return &Error{Line: int(at.line), Column: int(at.column), Reason: readable(err.Error()), cause: err}
	}
	if e.Line != 0 {
		return e
	}
	placed := *e // the host may return one error again and again
	placed.Line, placed.Column, placed.cause = int(at.line), int(at.column), err
	return &placed
}

// reset drops all references that the run has left.
func (c *Call) reset() {
	for _, f := range c.frames[:c.deepest] {
		clear(f.slots[:min(len(f.slots), f.paid)])
		f.fn, f.result, f.paid = nil, Value{}, 0
	}
	c.host, c.ended, c.inside, c.loading, c.depth, c.deepest, c.profile = nil, nil, nil, false, 0, 0, profiling{}
	if len(c.frames) > keptFrames {
		clear(c.frames[keptFrames:])
		c.frames = c.frames[:keptFrames]
	}
}

// keptFrames is how many frames wait for the next call.
const keptFrames = 32
