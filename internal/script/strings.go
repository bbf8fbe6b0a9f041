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
		return c.mapBytes(c.string("string.upper", args, 0), 'a', 'z')
	}},
	{Name: "string.lower", Min: 1, Max: 1, builtin: func(c *Call, args []Value) Value {
		return c.mapBytes(c.string("string.lower", args, 0), 'A', 'Z')
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
	for _, p := range parts {
		switch {
		case p.isString():
			total += int64(p.size())
		case p.isInt():
			total += int64(decimals(p.n))
		default:
			fail(at, "%s wants strings or numbers, not %s", name, p.Kind())
		}
	}
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

// mapBytes changes the case of ASCII letters from a to z.
func (c *Call) mapBytes(s string, a, z byte) Value {
	return c.makeString(int64(len(s)), c.at, func(b []byte) []byte {
		for i := range len(s) {
			if ch := s[i]; ch >= a && ch <= z {
				b = append(b, ch^0x20)
			} else {
				b = append(b, ch)
			}
		}
		return b
	})
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

// search charges for looking for sub bytes in so many, some times over. Go's
// search for long strings compares hashes, of a kind for which equal ones are
// easily made: every place may take a comparison of all of sub.
func (c *Call) search(in, sub, times int) {
	places := int64(max(in-sub, 0)) * int64(times)
	c.work(in*times, c.at)
	c.spend((places>>workShift)*(int64(sub)>>workShift), c.at)
}

// stringFind looks for plain text, and gives where it begins.
func stringFind(c *Call, args []Value) Value {
	s, sub, first := c.string("string.find", args, 0), c.string("string.find", args, 1), int64(1)
	if len(args) == 3 {
		if first = c.int("string.find", args, 2); first < 0 {
			first += int64(len(s)) + 1
		}
		first = max(first, 1)
	}
	if first > int64(len(s))+1 {
		return Value{}
	}
	rest := s[first-1:]
	c.search(len(rest), len(sub), 1)
	i := strings.Index(rest, sub)
	if i < 0 {
		return Value{}
	}
	return Int(first + int64(i))
}

func stringSplit(c *Call, args []Value) Value {
	s, separator := c.string("string.split", args, 0), c.string("string.split", args, 1)
	if separator == "" {
		fail(c.at, "string.split wants a separator")
	}
	c.search(len(s), len(separator), 2)
	n := strings.Count(s, separator) + 1
	t := c.newTable(n, 0, c.at)
	for range n {
		piece, rest, _ := strings.Cut(s, separator)
		t.list = append(t.list, String(piece))
		s = rest
	}
	return tableValue(t)
}
