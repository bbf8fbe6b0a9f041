package script

import (
	"slices"
	"strings"
)

// builtins are all that a script has besides the host's functions. Each charges
// before it works. Neither map is ever written to or iterated over after it was
// made.
var builtins = makeBuiltins(
	baseFunctions,
	stringFunctions,
	tableFunctions,
	mathFunctions,
)

func makeBuiltins(groups ...[]Function) map[string]*closure {
	all := map[string]*closure{}
	for _, g := range groups {
		for i := range g {
			all[g[i].Name] = &closure{native: &g[i]}
		}
	}
	return all
}

// library is a name before the dot.
type library struct{ names, example string }

var libraries = map[string]*library{
	"string": describeLibrary("string", "sub", stringFunctions),
	"table":  describeLibrary("table", "insert", tableFunctions),
	"math":   describeLibrary("math", "min", mathFunctions),
}

func describeLibrary(name, example string, functions []Function) *library {
	var names []string
	for _, f := range functions {
		names = append(names, strings.TrimPrefix(f.Name, name+"."))
	}
	return &library{names: strings.Join(names, ", "), example: example}
}

// method says whether s:name(...) is string.name(s, ...): char takes no string.
func (l *library) method(name string) bool {
	return name != "char" && slices.Contains(strings.Split(l.names, ", "), name)
}

var baseFunctions = []Function{
	{Name: "type", Min: 1, Max: 1, builtin: func(_ *Call, args []Value) Value {
		return String(args[0].Kind().String())
	}},
	{Name: "tostring", Min: 1, Max: 1, builtin: baseToString},
	{Name: "tonumber", Min: 1, Max: 2, builtin: baseToNumber},
	{Name: "error", Min: 1, Max: 1, builtin: func(c *Call, args []Value) Value {
		fail(c.at, "%s", c.message(args[0]))
		return Value{}
	}},
	{Name: "assert", Min: 1, Max: 2, builtin: func(c *Call, args []Value) Value {
		if !args[0].Truthy() {
			reason := "assertion failed"
			if len(args) == 2 {
				reason = c.message(args[1])
			}
			fail(c.at, "%s", reason)
		}
		return args[0]
	}},
}

// message is a script's own error text.
func (c *Call) message(v Value) string {
	s, ok := v.text()
	if !ok {
		fail(c.at, "an error message must be a string, not a %s", v.Kind())
	}
	return readable(s)
}

func baseToString(c *Call, args []Value) Value {
	if args[0].isString() {
		return args[0]
	}
	if args[0].isInt() {
		c.spend(numberSteps, c.at)
		c.allocate(int64(decimals(args[0].n))+stringBytes, c.at)
	}
	s, ok := args[0].text()
	if !ok {
		fail(c.at, "a %s has no text", args[0].Kind())
	}
	return String(s)
}

// baseToNumber returns nil for a text that is not a 64-bit integer.
func baseToNumber(c *Call, args []Value) Value {
	base := int64(10)
	if len(args) == 2 {
		if base = c.int("tonumber", args, 1); base < 2 || base > 36 {
			fail(c.at, "tonumber wants a base from 2 to 36, not %d", base)
		}
		c.string("tonumber", args, 0)
	}
	if args[0].isInt() {
		return args[0]
	}
	if !args[0].isString() {
		return Value{}
	}
	s := args[0].str()
	c.scan(len(s), c.at)
	n, ok := parseInt(strings.Trim(s, " \t\n\v\f\r"), base, len(args) == 1)
	if !ok {
		return Value{}
	}
	return Int(n)
}

// parseInt reads an integer with a sign, and with 0x if hex says so.
func parseInt(s string, base int64, hex bool) (n int64, ok bool) {
	negative := strings.HasPrefix(s, "-")
	if negative || strings.HasPrefix(s, "+") {
		s = s[1:]
	}
	if hex && (strings.HasPrefix(s, "0x") || strings.HasPrefix(s, "0X")) {
		s, base = s[2:], 16
	}
	if s == "" {
		return 0, false
	}
	for i := range len(s) { // downwards, where there is one number more
		d := digit(s[i])
		if d >= base {
			return 0, false
		}
		product, exact := multiply(n, base)
		if !exact || product-d > product {
			return 0, false
		}
		n = product - d
	}
	if negative {
		return n, true
	}
	return -n, n != -n || n == 0
}

func digit(c byte) int64 {
	switch {
	case c >= '0' && c <= '9':
		return int64(c - '0')
	case c >= 'a' && c <= 'z':
		return int64(c-'a') + 10
	case c >= 'A' && c <= 'Z':
		return int64(c-'A') + 10
	}
	return 99
}

var mathFunctions = []Function{
	{Name: "math.min", Min: 1, Max: -1, builtin: func(c *Call, args []Value) Value {
		return c.extreme("math.min", args, -1)
	}},
	{Name: "math.max", Min: 1, Max: -1, builtin: func(c *Call, args []Value) Value {
		return c.extreme("math.max", args, 1)
	}},
	{Name: "math.abs", Min: 1, Max: 1, builtin: func(c *Call, args []Value) Value {
		n := c.int("math.abs", args, 0)
		if n < 0 {
			if n = -n; n < 0 {
				fail(c.at, "integer overflow")
			}
		}
		return Int(n)
	}},
}

func (c *Call) extreme(name string, args []Value, sign int) Value {
	best := c.int(name, args, 0)
	for i := range args {
		if n := c.int(name, args, i); sign < 0 && n < best || sign > 0 && n > best {
			best = n
		}
	}
	return Int(best)
}

// string, int and table are arguments that must be of that kind.
func (c *Call) string(name string, args []Value, i int) string {
	if !args[i].isString() {
		c.wrong(name, args, i, "string")
	}
	return args[i].str()
}

func (c *Call) int(name string, args []Value, i int) int64 {
	if !args[i].isInt() {
		c.wrong(name, args, i, "number")
	}
	return args[i].n
}

func (c *Call) table(name string, args []Value, i int) *Table {
	if !args[i].isTable() {
		c.wrong(name, args, i, "table")
	}
	return args[i].table()
}

func (c *Call) wrong(name string, args []Value, i int, want string) {
	fail(c.at, "%s wants a %s as argument %d, not %s", name, want, i+1, args[i].Kind())
}
