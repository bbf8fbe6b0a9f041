package main

import (
	"fmt"
	"strings"

	"github.com/stoa-kv/stoa/internal/store"
)

// probe is a construct at its worst: a loop of as little else as can be.
type probe struct {
	name  string
	setup string
	unit  string
	scope []string
	fill  func(s *store.Store)
}

func (p *probe) body() string {
	return p.setup + "\nwhile true do\n" + strings.Repeat(p.unit+"\n", 8) + "end"
}

// measure runs a construct until its steps are used up.
func (p *probe) measure(runs int) used {
	s := store.New(nil)
	if p.fill != nil {
		p.fill(s)
	}
	prog, err := compile(p.body(), p.scope, keys{s}, limits)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", p.name, err))
	}
	u := prog.typical(runs)
	if u.err == nil || !strings.Contains(u.err.Error(), "steps") {
		panic(fmt.Sprintf("%s did not end by its steps: %v", p.name, u.err))
	}
	return u
}

func filled(n int, format string, value int) func(s *store.Store) {
	return func(s *store.Store) {
		for i := range n {
			s.Put(store.Revision{Main: int64(i + 2)}, fmt.Appendf(nil, format, i), make([]byte, value), 0)
		}
	}
}

func many(n int, format string) string {
	var b strings.Builder
	for i := range n {
		if strings.Contains(format, "%") {
			fmt.Fprintf(&b, format, i)
		} else {
			b.WriteString(format)
		}
		if i < n-1 {
			b.WriteString(", ")
		}
	}
	return b.String()
}

func each(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

var probes = []probe{
	// Statements.
	{name: "empty loop", unit: ""},
	{name: "local", unit: "do local a = 1 end"},
	{name: "local of three", unit: "do local a, b, c = 1, 2, 3 end"},
	{name: "local without a value", unit: "do local " + strings.TrimSuffix(strings.Repeat("a, ", 150), ", ") + " end"},
	{name: "assignment", setup: "local a", unit: "a = 1"},
	{name: "assignment of two", setup: "local a, b = 1, 2", unit: "a, b = b, a"},
	{name: "do", unit: "do end"},
	{name: "if", unit: "if true then end"},
	{name: "if not taken", unit: "if false then else end"},
	{name: "elseif", setup: "local a = 1", unit: "if a == 2 then elseif a == 3 then elseif a == 4 then else end"},
	{name: "while", setup: "local a = 1", unit: "while a do break end"},
	{name: "repeat", unit: "repeat until true"},
	{name: "numeric for", unit: "for i = 1, 100 do end"},
	{name: "numeric for of no turn", unit: "for i = 1, 0 do end"},
	{name: "ipairs", setup: "local t = {} for i = 1, 100 do t[i] = i end", unit: "for i, v in ipairs(t) do end"},
	{name: "ipairs of nothing", setup: "local t = {}", unit: "for i, v in ipairs(t) do end"},
	{name: "pairs", setup: "local t = {} for i = 1, 100 do t['k' .. i] = i end", unit: "for k, v in pairs(t) do end"},
	{name: "pairs of a sequence", setup: "local t = {} for i = 1, 100 do t[i] = i end", unit: "for k, v in pairs(t) do end"},
	{name: "pairs of nothing", setup: "local t = {}", unit: "for k, v in pairs(t) do end"},
	{name: "for with a shared variable", unit: "for i = 1, 100 do if false then local f = function() i = 2 end end end"},

	// Expressions.
	{name: "constant", setup: "local a", unit: "a = 'x'"},
	{name: "name of an outer function", setup: "local a, b = 1 local f = function() return a end", unit: "b = f()"},
	{name: "+", setup: "local a, b, c = 1, 2", unit: "c = a + b + a + b"},
	{name: "-", setup: "local a, b, c = 1, 2", unit: "c = a - b - a - b"},
	{name: "*", setup: "local a, b, c = 3, -2", unit: "c = a * b * a * b"},
	{name: "/", setup: "local a, b, c = 9223372036854775807, 3", unit: "c = a / b / b / b"},
	{name: "%", setup: "local a, b, c = -9223372036854775807, 7", unit: "c = a % b % b % b"},
	{name: "unary minus", setup: "local a, c = 3", unit: "c = -a"},
	{name: "not", setup: "local a, c = 3", unit: "c = not not not a"},
	{name: "# of a string", setup: "local a, c = 'abc'", unit: "c = #a"},
	{name: "# of a table", setup: "local a, c = {}", unit: "c = #a"},
	{name: "and", setup: "local a, c = 1", unit: "c = a and a and a"},
	{name: "or", setup: "local a, c = false", unit: "c = a or a or a"},
	{name: "== of numbers", setup: "local a, b, c = 1, 1", unit: "c = a == b"},
	{name: "== of strings of 63 bytes", setup: "local c local a, b = ('x'):rep(63), ('x'):rep(63)", unit: "c = a == b"},
	{name: "== of strings of 127 bytes", setup: "local c local a, b = ('x'):rep(127), ('x'):rep(127)", unit: "c = a == b"},
	{name: "== of long strings", setup: "local c local a, b = ('x'):rep(400000), ('x'):rep(400000)", unit: "c = a == b"},
	{name: "< of numbers", setup: "local a, b, c = 1, 1", unit: "c = a < b"},
	{name: "<= of numbers", setup: "local a, b, c = 1, 1", unit: "c = a <= b"},
	{name: "< of strings of 63 bytes", setup: "local c local a, b = ('x'):rep(63), ('x'):rep(63)", unit: "c = a < b"},
	{name: "< of long strings", setup: "local c local a, b = ('x'):rep(400000), ('x'):rep(400000)", unit: "c = a < b"},
	{name: ".. of two", setup: "local a, b, c = 'x', 'y'", unit: "c = a .. b"},
	{name: ".. of nothing", setup: "local a, b, c = '', ''", unit: "c = a .. b"},
	{name: ".. of numbers", setup: "local a, c = -9223372036854775808", unit: "c = a .. a"},
	{name: ".. of 90 numbers", setup: "local a, c = -9223372036854775808", unit: "c = " + strings.Repeat("a .. ", 90) + "a"},
	{name: ".. of 48 bytes", setup: "local c local a, b = ('x'):rep(24), ('y'):rep(23)", unit: "c = a .. b"},
	{name: ".. of long strings", setup: "local c local a, b = ('x'):rep(20000), ('y'):rep(20000)", unit: "c = a .. b"},

	// Functions.
	{name: "function value", setup: "local c", unit: "c = function() end"},
	{name: "function value with a variable", setup: "local a, c = 1", unit: "c = function() return a end"},
	{name: "function value with 100 variables", setup: "local c local " + many(100, "a%d"), unit: "c = function() return { " + many(100, "a%d") + " } end"},
	{name: "call", setup: "local function f() end", unit: "f()"},
	{name: "call with arguments", setup: "local function f(a, b, c) end", unit: "f(1, 2, 3)"},
	{name: "call with a result", setup: "local c local function f(a) return a end", unit: "c = f(1)"},
	{name: "call with missing arguments", setup: "local function f(" + many(190, "a%d") + ") end", unit: "f()"},
	{name: "call with shared parameters", setup: "local function f(" + many(190, "a%d") + ") if false then local g = function() " + each(190, "a%d = 1 ") + " end end end", unit: "f()"},
	{name: "call with too many arguments", setup: "local function f() end", unit: "f(" + many(190, "1") + ")"},
	{name: "local with a cell", unit: "do local a a = 1 if false then local g = function() a = 2 end end end"},
	{name: "locals with cells", unit: "do local " + many(100, "a%d") + " if false then local g = function() " + each(100, "a%d = 1 ") + " end end end"},
	{name: "recursion", setup: "local function f(n) if n > 0 then f(n - 1) end end", unit: "f(150)"},
	{name: "call of a builtin by its value", setup: "local f, c = math.abs", unit: "c = f(1)"},

	// Tables.
	{name: "{}", setup: "local c", unit: "c = {}"},
	{name: "{ 1, 2, 3 }", setup: "local c", unit: "c = { 1, 2, 3 }"},
	{name: "{ a = 1 }", setup: "local c", unit: "c = { a = 1 }"},
	{name: "{ 8 fields }", setup: "local c", unit: "c = { a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8 }"},
	{name: "{ 9 fields }", setup: "local c", unit: "c = { a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8, i = 9 }"},
	{name: "{ 100 fields }", setup: "local c", unit: "c = { " + many(100, "k%d = 1") + " }"},
	{name: "{ fields of strings and numbers }", setup: "local c", unit: "c = { a = 1, b = 1, c = 1, d = 1, e = 1, f = 1, g = 1, h = 1, [-1] = 1, [-2] = 1, [-3] = 1, [true] = 1 }"},
	{name: "{ 100 items }", setup: "local c", unit: "c = { " + many(100, "1") + " }"},
	{name: "t[i]", setup: "local t, i, c = { 1, 2, 3 }, 2", unit: "c = t[i]"},
	{name: "t.name", setup: "local t, c = { name = 1 }", unit: "c = t.name"},
	{name: "t.name of 8", setup: "local t, c = { aaaaaa1 = 1, aaaaaa2 = 1, aaaaaa3 = 1, aaaaaa4 = 1, aaaaaa5 = 1, aaaaaa6 = 1, aaaaaa7 = 1, aaaaaa8 = 1 }", unit: "c = t.aaaaaa8"},
	{name: "t.name that isn't there", setup: "local t, c = { aaaaaa1 = 1, aaaaaa2 = 1, aaaaaa3 = 1, aaaaaa4 = 1, aaaaaa5 = 1, aaaaaa6 = 1, aaaaaa7 = 1, aaaaaa8 = 1 }", unit: "c = t.aaaaaa9"},
	{name: "t[name] of 8, of 63 bytes", setup: "local p, t = ('x'):rep(62), {} for i = 1, 8 do t[p .. i] = i end local n, c = p .. 9", unit: "c = t[n]"},
	{name: "t[name] of 8, long", setup: "local p, t = ('x'):rep(100000), {} for i = 1, 8 do t[p .. i] = i end local n, c = p .. 9", unit: "c = t[n]"},
	{name: "t[name] of 100", setup: "local t, n, c = {}, 'k77' for i = 1, 100 do t['k' .. i] = i end", unit: "c = t[n]"},
	{name: "t[name] of 100000", setup: "local t, c = {} for i = 1, 100000 do t[i * 7919] = i end local i = 1", unit: "c = t[i] i = i + 7919"},
	{name: "t[true] of 100", setup: "local t, c = { [true] = 1 } for i = 1, 100 do t['k' .. i] = i end", unit: "c = t[true]"},
	{name: "t[name] of 100, of 63 bytes", setup: "local p, t = ('x'):rep(60), {} for i = 1, 100 do t[p .. i] = i end local n, c = p .. 77", unit: "c = t[n]"},
	{name: "t[name] of 100, long", setup: "local p, t = ('x'):rep(20000), {} for i = 1, 20 do t[p .. i] = i end local n, c = p .. 17", unit: "c = t[n]"},
	{name: "t[i] = v", setup: "local t = { 1 }", unit: "t[1] = 2"},
	{name: "t.name = v", setup: "local t = { name = 1 }", unit: "t.name = 2"},
	{name: "set and clear a field", setup: "local t = {}", unit: "t.a = 1 t.a = nil"},
	{name: "set and clear fields", setup: "local t = { a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8, i = 9 }", unit: "t.i = nil t.i = 1"},
	{name: "set and clear long fields", setup: "local k, t = {}, {} for i = 1, 8 do k[i] = ('x'):rep(300000) .. i end for i = 1, 8 do t[k[i]] = i end t.x = 1 t.x = nil", unit: "t.a = 1 t.a = nil"},
	{name: "set and clear the end of a sequence", setup: "local t = {}", unit: "t[1] = 1 t[1] = nil"},
	{name: "make and trim holes", setup: "local t = {}", unit: "for i = 1, 100 do t[i] = 1 end for i = 1, 100 do t[i] = nil end"},
	{name: "grow a sequence", setup: "local t = {}", unit: "t = {} for i = 1, 1000 do t[i] = 1 end"},
	{name: "grow fields by numbers", setup: "local t = {}", unit: "t = {} for i = 1, 1000 do t[-i] = 1 end"},
	{name: "grow fields to 9", setup: "local t = {}", unit: "t = {} for i = 1, 9 do t[-i] = 1 end"},
	{name: "grow fields to 5", setup: "local t = {}", unit: "t = {} for i = 1, 5 do t[-i] = 1 end"},
	{name: "grow fields by names", setup: "local t, n = {}, {} for i = 1, 1000 do n[i] = 'k' .. i end", unit: "t = {} for i = 1, 1000 do t[n[i]] = 1 end"},
	{name: "fields that become a sequence", setup: "local t", unit: "t = {} for i = 100, 1, -1 do t[i] = 1 end"},
	{name: "tombstones", setup: "local t = {}", unit: "for i = 1, 100 do t[-i] = 1 end for i = 1, 100 do t[-i] = nil end"},
	{name: "tombstones under pairs", setup: "local t = { [-1] = 1 }", unit: "for k in pairs(t) do for i = 2, 100 do t[-i] = 1 t[-i] = nil end end"},

	// Builtins.
	{name: "type", setup: "local c", unit: "c = type(1)"},
	{name: "tostring of a number", setup: "local a, c = -9223372036854775808", unit: "c = tostring(a)"},
	{name: "tostring of a string", setup: "local c", unit: "c = tostring('x')"},
	{name: "tostring of a boolean", setup: "local c", unit: "c = tostring(true)"},
	{name: "tonumber of 19 digits", setup: "local c", unit: "c = tonumber('-9223372036854775808')"},
	{name: "tonumber of 63 zeros", setup: "local z, c = ('0'):rep(63), nil", unit: "c = tonumber(z)"},
	{name: "tonumber of zeros", setup: "local z, c = ('0'):rep(100000), nil", unit: "c = tonumber(z)"},
	{name: "tonumber of zeros, base 36", setup: "local z, c = ('0'):rep(100000), nil", unit: "c = tonumber(z, 36)"},
	{name: "tonumber of 63 spaces", setup: "local z, c = (' '):rep(63), nil", unit: "c = tonumber(z)"},
	{name: "tonumber of spaces", setup: "local z, c = ('\\r'):rep(100000), nil", unit: "c = tonumber(z)"},
	{name: "assert", setup: "local c", unit: "c = assert(1)"},
	{name: "math.abs", setup: "local c", unit: "c = math.abs(-1)"},
	{name: "math.min", setup: "local c", unit: "c = math.min(1, 2)"},
	{name: "math.max of 190", setup: "local c", unit: "c = math.max(" + many(190, "1") + ")"},
	{name: "s:len", setup: "local s, c = 'abc'", unit: "c = s:len()"},
	{name: "s:sub", setup: "local s, c = ('x'):rep(1000), nil", unit: "c = s:sub(2, -2)"},
	{name: "s:byte", setup: "local s, c = ('x'):rep(1000), nil", unit: "c = s:byte(-500)"},
	{name: "string.char", setup: "local c", unit: "c = string.char(65)"},
	{name: "string.char of 190", setup: "local c", unit: "c = string.char(" + many(190, "65") + ")"},
	{name: "s:upper, short", setup: "local s, c = 'a'", unit: "c = s:upper()"},
	{name: "s:upper of 47 bytes", setup: "local s, c = ('a'):rep(47), nil", unit: "c = s:upper()"},
	{name: "s:upper, long", setup: "local s, c = ('aZ'):rep(10000), nil", unit: "c = s:upper()"},
	{name: "s:rep, short", setup: "local s, c = 'a'", unit: "c = s:rep(2)"},
	{name: "s:rep to 47 bytes", setup: "local s, c = 'a'", unit: "c = s:rep(47)"},
	{name: "s:rep, long", setup: "local s, c = 'a'", unit: "c = s:rep(20000)"},
	{name: "s:rep to 40 KB", setup: "local s, c = 'a'", unit: "c = s:rep(40000)"},
	{name: "s:rep to 100 KB", setup: "local s, c = 'a'", unit: "c = s:rep(100000)"},
	{name: "s:rep to 1 MB", setup: "local s, c = 'a'", unit: "c = s:rep(1000000)"},
	{name: "s:rep to 4 KB", setup: "local s, c = 'a'", unit: "c = s:rep(4000)"},
	{name: "s:rep of nothing", setup: "local s, c = ''", unit: "c = s:rep(9223372036854775807)"},
	{name: "s:find, short", setup: "local s, c = 'abc'", unit: "c = s:find('c')"},
	{name: "s:find of a byte", setup: "local s, c = ('a'):rep(100000), nil", unit: "c = s:find('b')"},
	{name: "s:find of a byte in 63", setup: "local s, c = ('a'):rep(63), nil", unit: "c = s:find('b')"},
	{name: "s:find of 2 bytes", setup: "local s, c = ('a'):rep(100000), nil", unit: "c = s:find('ab')"},
	{name: "s:find of 2 bytes in 63", setup: "local s, c = ('a'):rep(63), nil", unit: "c = s:find('ab')"},
	{name: "s:find of 8 bytes", setup: "local s, p, c = ('a'):rep(100000), ('a'):rep(7) .. 'b'", unit: "c = s:find(p)"},
	{name: "s:find of 32 bytes", setup: "local s, p, c = ('a'):rep(100000), ('a'):rep(31) .. 'b'", unit: "c = s:find(p)"},
	{name: "s:find of 63 bytes", setup: "local s, p, c = ('a'):rep(100000), ('a'):rep(62) .. 'b'", unit: "c = s:find(p)"},
	{name: "s:find of 32 bytes in 63", setup: "local s, p, c = ('a'):rep(63), ('a'):rep(31) .. 'b'", unit: "c = s:find(p)"},
	{name: "s:find of 64 bytes", setup: "local s, p, c = ('a'):rep(100000), ('a'):rep(63) .. 'b'", unit: "c = s:find(p)"},
	{name: "s:find of 127 bytes", setup: "local s, p, c = ('a'):rep(100000), ('a'):rep(126) .. 'b'", unit: "c = s:find(p)"},
	{name: "s:find of 1000 bytes", setup: "local s, p, c = ('a'):rep(20000), ('a'):rep(999) .. 'b'", unit: "c = s:find(p)"},
	{name: "s:find with colliding hashes", setup: "local z = ('\\0'):rep(62) local s, p, c = (z .. 'ab'):rep(300), z .. 'b' .. z .. 'a'", unit: "c = s:find(p)"},
	{name: "s:find whose first bytes are there", setup: "local s, p, c = ('ab'):rep(20000), 'abab' .. ('a'):rep(20), nil", unit: "c = s:find(p)"},
	{name: "s:split, short", setup: "local s, c = 'a,b'", unit: "c = s:split(',')"},
	{name: "s:split of 40 pieces", setup: "local s, c = (','):rep(40), nil", unit: "c = s:split(',')"},
	{name: "s:split, long", setup: "local s, c = (','):rep(10000), nil", unit: "c = s:split(',')"},
	{name: "s:split at 2 bytes", setup: "local s, c = (',,'):rep(10000), nil", unit: "c = s:split(',,')"},
	{name: "s:split at 3 bytes", setup: "local s, c = (',,;'):rep(10000), nil", unit: "c = s:split(',,;')"},
	{name: "s:split at 20 bytes", setup: "local p, c = (','):rep(19), nil local s = (p .. ';'):rep(1000)", unit: "c = s:split(p .. ';')"},
	{name: "s:split that finds nothing", setup: "local p, c = (','):rep(31), nil local s = (','):rep(10000)", unit: "c = s:split(p .. ';')"},
	{name: "s:startswith", setup: "local s, c = ('x'):rep(63), nil", unit: "c = s:startswith(s)"},
	{name: "s:startswith, long", setup: "local s, p, c = ('x'):rep(400000), ('x'):rep(400000), nil", unit: "c = s:startswith(p)"},
	{name: "s:endswith, long", setup: "local s, p, c = ('x'):rep(400000), ('x'):rep(400000), nil", unit: "c = s:endswith(p)"},
	{name: "format of nothing", setup: "local c", unit: "c = string.format('')"},
	{name: "format %d", setup: "local c", unit: "c = string.format('%020d', 12345)"},
	{name: "format %%", setup: "local c", unit: "c = string.format('%%')"},
	{name: "format of many %%", setup: "local f, c = ('%%'):rep(20000), nil", unit: "c = string.format(f)"},
	{name: "format of 31 %%", setup: "local f, c = ('%%'):rep(31), nil", unit: "c = string.format(f)"},
	{name: "format of 190 %d", setup: "local n, f, c = -9223372036854775808, ('%d'):rep(190), nil", unit: "c = string.format(f, " + many(190, "n") + ")"},
	{name: "format of 190 %X", setup: "local n, f, c = -1, ('%X'):rep(190), nil", unit: "c = string.format(f, " + many(190, "n") + ")"},
	{name: "format of 190 %100d", setup: "local n, f, c = -1, ('%100d'):rep(190), nil", unit: "c = string.format(f, " + many(190, "n") + ")"},
	{name: "format of 190 %s", setup: "local n, f, c = '', ('%s'):rep(190), nil", unit: "c = string.format(f, " + many(190, "n") + ")"},
	{name: "format of flags", setup: "local f, c = '%' .. ('0'):rep(20000) .. 'd'", unit: "c = string.format(f, 1)"},
	{name: "format of text", setup: "local f, c = ('x'):rep(20000), nil", unit: "c = string.format(f)"},
	{name: "format %s, long", setup: "local s, c = ('x'):rep(20000), nil", unit: "c = string.format('%s', s)"},
	{name: "table.insert", setup: "local t = {}", unit: "t = {} for i = 1, 100 do table.insert(t, i) end"},
	{name: "table.insert at the front", setup: "local t = {} for i = 1, 10000 do t[i] = i end", unit: "table.insert(t, 1, 1) table.remove(t)"},
	{name: "table.insert at the front of strings", setup: "local t = {} for i = 1, 10000 do t[i] = 'x' .. i end", unit: "table.insert(t, 1, 'x') table.remove(t)"},
	{name: "table.remove", setup: "local t = { 1 }", unit: "t[1] = 1 table.remove(t)"},
	{name: "table.remove at the front", setup: "local t = {} for i = 1, 10000 do t[i] = i end", unit: "table.remove(t, 1) t[10000] = 1"},
	{name: "table.remove at the front of strings", setup: "local t = {} for i = 1, 10000 do t[i] = 'x' .. i end", unit: "table.remove(t, 1) t[10000] = 'y'"},
	{name: "table.remove at the front of 4", setup: "local t = { 1, 2, 3, 4 }", unit: "table.remove(t, 1) t[4] = 1"},
	{name: "table.concat of numbers", setup: "local t, c = {} for i = 1, 1000 do t[i] = -9223372036854775808 end", unit: "c = table.concat(t)"},
	{name: "table.concat of nothing", setup: "local t, c = {} for i = 1, 1000 do t[i] = '' end", unit: "c = table.concat(t)"},
	{name: "table.concat of bytes", setup: "local t, c = {} for i = 1, 1000 do t[i] = 'x' end", unit: "c = table.concat(t, ',')"},
	{name: "table.concat of long strings", setup: "local t, c = {} for i = 1, 10 do t[i] = ('x'):rep(2000) end", unit: "c = table.concat(t, ',')"},
	{name: "table.sort of two", setup: "local t = { 2, 1 }", unit: "table.sort(t)"},
	{name: "table.sort of one", setup: "local t = { 2 }", unit: "table.sort(t)"},
	{name: "table.sort", setup: "local t = {} for i = 1, 1000 do t[i] = (i * 7919) % 1000 end", unit: "table.sort(t)"},
	{name: "table.sort, mixed again", setup: "local t = {}", unit: "for i = 1, 1000 do t[i] = (i * 7919) % 1000 end table.sort(t)"},
	{name: "table.sort of strings", setup: "local t = {} for i = 1, 1000 do t[i] = ('x'):rep(60) .. (i * 7919) % 1000 end", unit: "table.sort(t)"},
	{name: "table.sort of long strings", setup: "local t = {} for i = 1, 100 do t[i] = ('x'):rep(2000) .. (i * 7919) % 1000 end", unit: "table.sort(t)"},
	{name: "table.sort with a function", setup: "local t = {} for i = 1, 1000 do t[i] = i end", unit: "table.sort(t, function(a, b) return true end)"},
}

const scopes = "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa%02d/"

func wide() (list []string) {
	for i := range 99 {
		list = append(list, fmt.Sprintf(scopes, i))
	}
	return list
}

// hostProbes are those of the state proxy.
var hostProbes = []probe{
	{name: "get of a key that isn't there", setup: "local c", unit: "c = get('/k/none')", fill: filled(10_000, "/k/%05d", 10)},
	{name: "get", setup: "local c", unit: "c = get('/k/00777')", fill: filled(10_000, "/k/%05d", 10)},
	{name: "get with 100 scopes", setup: "local c", unit: "c = get('" + fmt.Sprintf(scopes, 98) + "x')", scope: wide()},
	{name: "get of a long key", setup: "local k, c = '/k/' .. ('x'):rep(10000), nil", unit: "c = get(k)"},
	{name: "get of many", setup: "local c, i = 0, 0", unit: "c = get(string.format('/k/%05d', i)) i = (i + 7919) % 100000", fill: filled(100_000, "/k/%05d", 10)},
	{name: "stat", setup: "local c", unit: "c = stat('/k/00777')", fill: filled(10_000, "/k/%05d", 10)},
	{name: "put of one key", setup: "local c", unit: "put('/k/a', 'v')"},
	{name: "put of a number", setup: "local c", unit: "put('/k/a', 12345)"},
	{name: "put of new keys", setup: "local i = 0", unit: "i = i + 1 put('/k/' .. i, 'v')"},
	{name: "put of keys that are there", setup: "local i = 0", unit: "i = i + 1 put(string.format('/k/%05d', i), 'v')", fill: filled(100_000, "/k/%05d", 10)},
	{name: "put of long values", setup: "local i, v = 0, ('x'):rep(10000)", unit: "put('/k/a', v)"},
	{name: "put of long keys", setup: "local i, v = 0, '/k/' .. ('x'):rep(10000)", unit: "i = i + 1 put(v .. i, 'v')"},
	{name: "create that fails", setup: "local c", unit: "c = create('/k/00777', 'v')", fill: filled(10_000, "/k/%05d", 10)},
	{name: "cas that fails", setup: "local c", unit: "c = cas('/k/00777', 'a', 'v')", fill: filled(10_000, "/k/%05d", 10)},
	{name: "cas", setup: "local c put('/k/a', 'v')", unit: "c = cas('/k/a', 'v', 'v')"},
	{name: "delete of nothing", setup: "local c", unit: "c = delete('/k/none')", fill: filled(10_000, "/k/%05d", 10)},
	{name: "delete", setup: "local i = 0", unit: "i = i + 1 delete(string.format('/k/%05d', i))", fill: filled(100_000, "/k/%05d", 10)},
	{name: "put and delete of one key", setup: "local c", unit: "put('/k/a', 'v') delete('/k/a')"},
	{name: "range of nothing", setup: "local c", unit: "c = range('/k/none/')", fill: filled(10_000, "/k/%05d", 10)},
	{name: "range of one", setup: "local c", unit: "c = range('/k/', 1)", fill: filled(10_000, "/k/%05d", 10)},
	{name: "range of 100", setup: "local c", unit: "c = range('/k/', 100)", fill: filled(10_000, "/k/%05d", 10)},
	{name: "range of 10000", setup: "local c", unit: "c = range('/k/')", fill: filled(10_000, "/k/%05d", 10)},
	{name: "range over 1000 deletions", setup: "local c for i = 0, 999 do delete(string.format('/k/%05d', i)) end", unit: "c = range('/k/', 1)", fill: filled(10_000, "/k/%05d", 10)},
	{name: "range of nothing beside 1000 writes", setup: "local c for i = 1, 1000 do put(string.format('/k/a/%05d', i * 10), 'v') end", unit: "c = range('/k/b/')", fill: filled(10_000, "/k/%05d", 10)},
	{name: "range beside a write", setup: "local c put('/k/zzz', 'v')", unit: "c = range('/k/', 1)", fill: filled(10_000, "/k/%05d", 10)},
	{name: "range over 500 deletions of long keys", setup: "local c, p = 0, '/k/' .. ('x'):rep(900) for i = 0, 499 do delete(p .. string.format('%05d', i)) end", unit: "c = range('/k/', 1)", fill: filled(1000, "/k/"+strings.Repeat("x", 900)+"%05d", 10)},
	{name: "range beside a new write", setup: "local c, i = 0, 0", unit: "i = (i + 7919) % 10000 put('/k/' .. i, 'v') c = range('/k/', 1)"},
	{name: "range beside a new write of a long key", setup: "local c, i, p = 0, 0, '/k/' .. ('x'):rep(900)", unit: "i = (i + 7919) % 10000 put(p .. i, 'v') c = range('/k/', 1)"},
	{name: "children of 10000", setup: "local c", unit: "c = children('/k/')", fill: filled(10_000, "/k/%05d", 10)},
	{name: "children beside a deletion", setup: "local c delete('/k/00003')", unit: "c = children('/k/', 33)", fill: filled(10_000, "/k/%05d", 10)},
	{name: "range beside a deletion", setup: "local c delete('/k/00003')", unit: "c = range('/k/', 33)", fill: filled(10_000, "/k/%05d", 10)},
	{name: "children that are one", setup: "local c", unit: "c = children('/k/')", fill: filled(10_000, "/k/a/%05d", 10)},
	{name: "children with long names", setup: "local c", unit: "c = children('/k/')", fill: filled(1000, "/k/"+strings.Repeat("x", 1000)+"/%05d", 10)},
	{name: "count of nothing", setup: "local c", unit: "c = count('/k/none/')", fill: filled(10_000, "/k/%05d", 10)},
	{name: "count of 10000", setup: "local c", unit: "c = count('/k/')", fill: filled(10_000, "/k/%05d", 10)},
	{name: "count of 100000", setup: "local c", unit: "c = count('/k/')", fill: filled(100_000, "/k/%05d", 10)},
	{name: "count beside 1000 writes", setup: "local c for i = 1, 1000 do put(string.format('/k/%05d', i * 10), 'v') end", unit: "c = count('/k/')", fill: filled(10_000, "/k/%05d", 10)},
	{name: "notify", unit: "notify('/k/a', 'v')"},
	{name: "monitor", unit: "monitor('/k/a', 'v')"},
	{name: "revision", setup: "local c", unit: "c = revision()"},
	{name: "client", setup: "local c", unit: "c = client()"},
}
