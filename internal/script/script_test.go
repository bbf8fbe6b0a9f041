package script_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/script"
)

var roomy = script.Limits{Steps: 1 << 20, Bytes: 1 << 24, Depth: 100}

// host is what the stories' scripts can call: state that lives for one call.
var host = []script.Function{
	{Name: "get", Min: 1, Max: 1, Do: func(c *script.Call, args []script.Value) (script.Value, error) {
		key, ok := args[0].AsString()
		if !ok {
			return script.Nil(), errors.New("get wants a key")
		}
		v, ok := c.Host().(map[string]string)[key]
		if !ok {
			return script.Nil(), nil
		}
		return script.String(v), nil
	}},
	{Name: "put", Min: 2, Max: 2, Do: func(c *script.Call, args []script.Value) (script.Value, error) {
		key, _ := args[0].AsString()
		if err := c.Charge(10, 100); err != nil {
			return script.Nil(), err
		}
		c.Host().(map[string]string)[key] = show(args[1])
		return script.Nil(), nil
	}},
	{Name: "range", Min: 1, Max: 1, Do: func(c *script.Call, args []script.Value) (script.Value, error) {
		n, _ := args[0].AsInt()
		t, err := c.NewTable(int(n), 0)
		if err != nil {
			return script.Nil(), err
		}
		for i := range n {
			row, err := c.NewTable(0, 2)
			if err != nil {
				return script.Nil(), err
			}
			if err := errors.Join(row.Set(c, script.String("key"), script.Int(i)), t.Append(c, row.Value())); err != nil {
				return script.Nil(), err
			}
		}
		return t.Value(), nil
	}},
	{Name: "broken", Do: func(*script.Call, []script.Value) (script.Value, error) {
		var none []int
		return script.Int(int64(none[3])), nil
	}},
	{Name: "quota", Do: func(*script.Call, []script.Value) (script.Value, error) {
		return script.Nil(), &script.Error{Reason: "more than 3 writes", Limit: true}
	}},
	{Name: "swallow", Do: func(c *script.Call, _ []script.Value) (script.Value, error) {
		_ = c.Charge(1<<40, 0)
		return script.Bool(true), nil
	}},
}

// show writes a value as a script would.
func show(v script.Value) string {
	switch v.Kind() {
	case script.StringKind:
		s, _ := v.AsString()
		return strconv.Quote(s)
	case script.TableKind:
		t, _ := v.AsTable()
		var b strings.Builder
		b.WriteByte('{')
		for k, v := range t.All() {
			if b.Len() > 1 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%s: %s", show(k), show(v))
		}
		return b.String() + "}"
	case script.IntKind:
		n, _ := v.AsInt()
		return strconv.FormatInt(n, 10)
	case script.BoolKind:
		b, _ := v.AsBool()
		return strconv.FormatBool(b)
	}
	return v.Kind().String()
}

// outcome is all that can be seen of a run.
type outcome struct {
	value string
	err   script.Error
	usage script.Usage
}

func (o outcome) String() string {
	switch {
	case o.err.Reason == "":
		return o.value
	case o.err.Limit:
		return "limit: " + o.err.Error()
	}
	return "error: " + o.err.Error()
}

func load(t testing.TB, source string) *script.Module {
	p, err := script.Compile([]byte(source), host, script.Bounds{})
	require.NoError(t, err)
	m, _, err := p.Load(roomy)
	require.NoError(t, err)
	return m
}

// call calls the module's `run`, and once more with a profile, which must make no
// difference.
func call(m *script.Module, l script.Limits, args ...script.Value) outcome {
	fn := m.Export()
	if t, ok := fn.AsTable(); ok {
		fn = t.Field("run")
	}
	v, u, err := m.Call(fn, args, l, map[string]string{"/ctr": "41"})
	o := result(show(v), u, err)
	var p script.Profile
	v, u, err = m.Profiled(&p, fn, args, l, map[string]string{"/ctr": "41"})
	if profiled := result(show(v), u, err); profiled != o || stepsOf(&p) != u.Steps {
		panic(fmt.Sprintf("%+v; with a profile of %d steps: %+v", o, stepsOf(&p), profiled))
	}
	return o
}

// stepsOf are the steps of all lines of a profile.
func stepsOf(p *script.Profile) (steps int64) {
	_, lines := p.Usage()
	for _, l := range lines {
		steps += l.Steps
	}
	return steps
}

func result(v string, u script.Usage, err error) outcome {
	o := outcome{value: v, usage: u}
	if e := (*script.Error)(nil); errors.As(err, &e) {
		o.err = script.Error{Line: e.Line, Column: e.Column, Reason: e.Reason, Limit: e.Limit}
	}
	return o
}

// compileAndRun takes a whole file, and calls its `run`.
func compileAndRun(source string, b script.Bounds, l script.Limits) outcome {
	p, err := script.Compile([]byte(source), host, b)
	if err != nil {
		return result("", script.Usage{}, err)
	}
	m, u, err := p.Load(l)
	if err != nil {
		return result("", u, err)
	}
	return call(m, l)
}

// TestStories runs testdata. Commands:
//
//	file    the input is a whole file; its `run` is called
//	body    the input is the body of run, from line 1
//	bodies  each line is the body of a run
//	eval    each line is an expression
//	refuse  each line is a file of its own; \n stands for a line's end
//
// Arguments steps=, bytes= and depth= are limits; usage shows what was used.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.Contains(path, "fuzz/") {
			return
		}
		datadriven.RunTest(t, path, story)
	})
}

func story(t *testing.T, d *datadriven.TestData) string {
	l := roomy
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			continue
		}
		n, err := strconv.ParseInt(a.Vals[0], 10, 64)
		require.NoError(t, err)
		switch a.Key {
		case "steps":
			l.Steps = n
		case "bytes":
			l.Bytes = n
		case "depth":
			l.Depth = int(n)
		}
	}
	var out strings.Builder
	show := func(o outcome) {
		out.WriteString(o.String())
		if d.HasArg("usage") {
			fmt.Fprintf(&out, " (%d steps, %d bytes)", o.usage.Steps, o.usage.Bytes)
		}
		out.WriteByte('\n')
	}
	switch d.Cmd {
	case "file":
		show(compileAndRun(d.Input, script.Bounds{}, l))
	case "body":
		o := compileAndRun("return { run = function()\n"+d.Input+"\nend }", script.Bounds{}, l)
		o.err.Line = max(o.err.Line-1, 0)
		show(o)
	case "bodies":
		for line := range strings.SplitSeq(d.Input, "\n") {
			o := compileAndRun("return { run = function()\n"+line+"\nend }", script.Bounds{}, l)
			o.err.Line = max(o.err.Line-1, 0)
			fmt.Fprintf(&out, "%s\n  ", line)
			show(o)
		}
	case "eval":
		const before = "return { run = function() return "
		for line := range strings.SplitSeq(d.Input, "\n") {
			o := compileAndRun(before+line+"\nend }", script.Bounds{}, l)
			if o.err.Line == 1 {
				o.err.Column -= len(before)
			}
			fmt.Fprintf(&out, "%s\n  ", line)
			show(o)
		}
	case "refuse":
		for line := range strings.SplitSeq(d.Input, "\n") {
			_, err := script.Compile([]byte(strings.ReplaceAll(line, `\n`, "\n")), host, script.Bounds{Nesting: 20, Nodes: 200, Source: 500})
			if err == nil {
				fmt.Fprintf(&out, "accepted: %s\n", line)
				continue
			}
			fmt.Fprintf(&out, "%s\n  %v\n", line, err)
		}
	default:
		d.Fatalf(t, "unknown command")
	}
	return out.String()
}
