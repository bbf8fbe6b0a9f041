package script

import (
	"fmt"
	"sync"
)

// Function is a function that the host gives to scripts, as a global. Do must
// not keep args, nor any table or function in it, beyond the call.
type Function struct {
	Name     string
	Min, Max int // arguments; Max < 0 is any number
	Do       func(c *Call, args []Value) (Value, error)

	builtin func(c *Call, args []Value) Value
}

// counts returns the error text for calling f with n arguments, "" if that is allowed.
func (f *Function) counts(n int) string {
	switch {
	case n >= f.Min && (n <= f.Max || f.Max < 0):
		return ""
	case f.Min == f.Max:
		return fmt.Sprintf("%s wants %d argument%s, not %d", f.Name, f.Min, plural(f.Min), n)
	case f.Max < 0:
		return fmt.Sprintf("%s wants at least %d argument%s, not %d", f.Name, f.Min, plural(f.Min), n)
	}
	return fmt.Sprintf("%s wants %d to %d arguments, not %d", f.Name, f.Min, f.Max, n)
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// Program is a verified and compiled source.
type Program struct {
	main *closure
	kept int64 // bytes of its code; see kept.go
}

// Module is a program whose file has been run. It never changes after [Module.Keep],
// and then any number of goroutines may call it at once.
type Module struct {
	export Value
	kept   int64 // bytes of the program's code
}

// calls are those that are over, to be used again. All programs share them, for they
// are made for none: each program's own would be kept for as long as the program.
var calls = sync.Pool{New: func() any { return &Call{} }}

// Compile verifies and compiles a source. The error is an *Error with the place
// and the reason.
func Compile(source []byte, host []Function, b Bounds) (p *Program, err error) {
	defer func() {
		if r := recover(); r != nil {
			p, err = nil, recovered(r)
		}
	}()
	b = b.orDefault()
	globals := make(map[string]*closure, len(host))
	for i := range host {
		globals[host[i].Name] = &closure{native: &host[i]}
	}
	check(source, b)
	file := verify(source, b, globals)
	return &Program{main: &closure{code: compileFunction(file)}, kept: keptBySource(source) + keptByFunction(file)}, nil
}

// Load runs the file. Host functions can't be called then, and the objects
// that it creates are read-only afterwards.
func (p *Program) Load(l Limits) (*Module, Usage, error) {
	v, u, err := run(p.main, nil, l, nil, true, nil)
	if err != nil {
		return nil, u, err
	}
	return &Module{v, p.kept}, u, nil
}

// Export is the return value of the file, nil after [Module.Keep].
func (m *Module) Export() Value { return m.export }

// Callable tells whether a value is a function of the file, and not a builtin.
func (m *Module) Callable(v Value) bool {
	return v.isFunction() && v.closure().loaded && v.closure().code != nil
}

// Call calls a function that was made while the file was loaded. Its result
// may be read at any time, but must not be passed to another call; nor must args
// come from one. host is the result of [Call.Host] in host functions. The error is an *Error.
func (m *Module) Call(fn Value, args []Value, l Limits, host any) (Value, Usage, error) {
	return m.Profiled(nil, fn, args, l, host)
}

// Profiled is [Module.Call], and counts the steps in p unless that is nil. The result,
// the error and the usage are the same.
func (m *Module) Profiled(p *Profile, fn Value, args []Value, l Limits, host any) (Value, Usage, error) {
	if !m.Callable(fn) {
		return Value{}, Usage{}, &Error{Reason: "not a function of this file"}
	}
	return run(fn.closure(), args, l, host, false, p)
}

func run(fn *closure, args []Value, l Limits, host any, loading bool, p *Profile) (v Value, u Usage, err error) {
	l.Steps, l.Bytes, l.Depth = max(l.Steps, 0), max(l.Bytes, 0), min(l.Depth, MaxDepth)
	c := calls.Get().(*Call)
	c.limits, c.steps, c.bytes, c.host, c.loading = l, l.Steps, l.Bytes, host, loading
	if p != nil {
		c.beginProfile()
	}
	defer func() {
		u = c.usage()
		if p != nil {
			p.add(c.profile.lines)
		}
		if r := recover(); r != nil {
			e := recovered(r)
			v, err = Value{}, e
			if e.Panic != nil {
				c.blame(e)
				return // c is not reused: its state is undefined
			}
		}
		c.reset()
		calls.Put(c)
	}()
	return c.invoke(fn, args, fn.code.at), u, nil
}

// blame adds to e the host function that has panicked, if one has.
func (c *Call) blame(e *Error) {
	if c.inside != nil {
		e.Line, e.Column = int(c.at.line), int(c.at.column)
		e.Reason = "internal error in " + c.inside.Name
	}
}
