package script

import (
	"strings"
	"unsafe"
)

var stringFunctions = []Function{
	{Name: "string.len", Min: 1, Max: 1, builtin: func(c *Call, args []Value) Value {
		return Int(int64(len(c.string("string.len", args, 0))))
	}},
	{Name: "string.sub", Min: 2, Max: 3, builtin: stringSub},
	{Name: "string.byte", Min: 1, Max: 2, builtin: stringByte},
	{Name: "string.char", Min: 0, Max: -1, builtin: stringChar},
	{Name: "string.upper", Min: 1, Max: 1, builtin: func(c *Call, args []Value) Value {
		return c.changeCase(c.string("string.upper", args, 0), 'a')
	}},
	{Name: "string.lower", Min: 1, Max: 1, builtin: func(c *Call, args []Value) Value {
		return c.changeCase(c.string("string.lower", args, 0), 'A')
	}},
	{Name: "string.rep", Min: 2, Max: 2, builtin: stringRep},
	{Name: "string.find", Min: 2, Max: 3, builtin: stringFind},
	{Name: "string.split", Min: 2, Max: 2, builtin: stringSplit},
	{Name: "string.startswith", Min: 2, Max: 2, builtin: func(c *Call, args []Value) Value {
		s, prefix := c.string("string.startswith", args, 0), c.string("string.startswith", args, 1)
		c.work(len(prefix), c.at)
		return Bool(strings.HasPrefix(s, prefix))
	}},
	{Name: "string.endswith", Min: 2, Max: 2, builtin: func(c *Call, args []Value) Value {
		s, suffix := c.string("string.endswith", args, 0), c.string("string.endswith", args, 1)
		c.work(len(suffix), c.at)
		return Bool(strings.HasSuffix(s, suffix))
	}},
	{Name: "string.format", Min: 1, Max: -1, builtin: stringFormat},
}

// makeString allocates n bytes, for fill to append to, after they were charged.
func (c *Call) makeString(n int64, at position, fill func(b []byte) []byte) Value {
	c.allocate(n+stringBytes, at)
	if n == 0 {
		return String("")
	}
	b := fill(make([]byte, 0, n))
	return String(unsafe.String(unsafe.SliceData(b), len(b)))
}

// join is .. and table.concat.
func (c *Call) join(parts []Value, separator, name string, at position) Value {
	total := int64(0)
	if len(parts) > 1 {
		total = int64(len(separator)) * int64(len(parts)-1)
	}
	numbers := int64(0)
	for i := range parts {
		switch p := &parts[i]; {
		case p.isString():
			total += int64(p.size())
		case p.isInt():
			total += int64(decimals(p.n))
			numbers++
		default:
			fail(at, "%s wants strings or numbers, not %s", name, p.Kind())
		}
	}
	c.spend(numbers*numberSteps, at)
	return c.makeString(total, at, func(b []byte) []byte {
		for i, p := range parts {
			if i > 0 {
				b = append(b, separator...)
			}
			b = appendText(b, p)
		}
		return b
	})
}

// span turns Lua's bounds, which count from the end if negative, into Go's.
func span(first, last int64, n int) (from, to int) {
	size := int64(n)
	if first < 0 {
		first = max(first+size+1, 1)
	}
	if last < 0 {
		last += size + 1
	}
	first, last = max(first, 1), min(last, size)
	if first > last {
		return 0, 0
	}
	return int(first - 1), int(last)
}

func stringSub(c *Call, args []Value) Value {
	s, last := c.string("string.sub", args, 0), int64(-1)
	if len(args) == 3 {
		last = c.int("string.sub", args, 2)
	}
	from, to := span(c.int("string.sub", args, 1), last, len(s))
	return String(s[from:to])
}

func stringByte(c *Call, args []Value) Value {
	s, i := c.string("string.byte", args, 0), int64(1)
	if len(args) == 2 {
		i = c.int("string.byte", args, 1)
	}
	from, to := span(i, i, len(s))
	if from == to {
		return Value{}
	}
	return Int(int64(s[from]))
}

func stringChar(c *Call, args []Value) Value {
	for i := range args {
		if n := c.int("string.char", args, i); n < 0 || n > 255 {
			fail(c.at, "string.char wants bytes from 0 to 255, not %d", n)
		}
	}
	return c.makeString(int64(len(args)), c.at, func(b []byte) []byte {
		for _, a := range args {
			b = append(b, byte(a.n))
		}
		return b
	})
}

// changeCase makes the other case of the ASCII letters that begin with first.
func (c *Call) changeCase(s string, first byte) Value {
	c.scan(len(s), c.at)
	return c.makeString(int64(len(s)), c.at, func(b []byte) []byte { return swapCase(append(b, s...), first) })
}

// swapCase changes the case of the 26 letters from first in place.
func swapCase(b []byte, first byte) []byte {
	for i, ch := range b {
		if ch-first < 26 {
			b[i] = ch ^ 0x20
		}
	}
	return b
}

func stringRep(c *Call, args []Value) Value {
	s, n := c.string("string.rep", args, 0), max(c.int("string.rep", args, 1), 0)
	size, exact := multiply(int64(len(s)), n)
	if !exact || size > c.bytes {
		size = c.bytes // which fails, with the headers on top
	}
	return c.makeString(size, c.at, func(b []byte) []byte {
		if size > 0 {
			b = append(b, s...)
		}
		for left := int(size) - len(b); left > 0; left = int(size) - len(b) { // not one by one: a turn costs more than a byte
			b = append(b, b[:min(len(b), left)]...)
		}
		return b
	})
}
