//go:build !race

// One goroutine: there is nothing for the race detector, under which this takes ten times as long.

package script_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/script"
)

// attackLimits are what a cluster might set.
var attackLimits = script.Limits{Steps: 200_000, Bytes: 1 << 20, Depth: 64}

// attackBounds let through what is large, so that nothing but the bound that is
// meant stops it.
var attackBounds = script.Bounds{Source: 128 << 10}

// attacks are hostile scripts: whole files, or the body of a handler. Each must
// be refused, or end with the error that is given. "harmless" ones end well.
var attacks = []struct{ name, source, want string }{
	// Loops that don't end.
	{"while", "while true do end", "more than 200000 steps"},
	{"while with a call", "local function f() return true end while f() do end", "more than 200000 steps"},
	{"repeat", "repeat until false", "more than 200000 steps"},
	{"repeat with locals", "repeat local x = 1 until x == 2", "more than 200000 steps"},
	{"numeric for", "for i = 1, 9223372036854775807 do end", "more than 200000 steps"},
	{"numeric for at the edge", "local n = 0 for i = 9223372036854775800, 9223372036854775807, 5 do n = n + 1 end return n", ""},
	{"numeric for downwards", "for i = 9223372036854775807, -9223372036854775808, -1 do end", "more than 200000 steps"},
	{"numeric for over everything in few turns", "for i = -9223372036854775808, 9223372036854775807, 9223372036854775807 do end", ""},
	{"for with step 0", "for i = 1, 2, 0 do end", "can't be 0"},
	{"ipairs that feeds itself", "local t = { 1 } for i, v in ipairs(t) do t[i + 1] = v end", "more than"},
	{"pairs that feeds itself", "local t = { a = 1 } while true do for k, v in pairs(t) do t[k .. 'x'] = v end end", "more than"},
	{"pairs over tombstones", "local t = {} for i = 1, 300 do t['k' .. i] = i t['k' .. i] = nil end while true do for k in pairs(t) do end end", "more than 200000 steps"},
	{"nested loops", strings.Repeat("for i = 1, 1000 do ", 10) + strings.Repeat("end ", 10), "more than 200000 steps"},
	{"goto", "::a:: goto a", "there are no labels"},
	{"empty statements", strings.Repeat(";", 60_000), ""},
	{"condition that works for nothing", "while ('x'):rep(100) == ('y'):rep(100) or true do end", "more than"},

	// Recursion.
	{"recursion", "local function f() return f() end f()", "nested more than 64"},
	{"recursion not at the end", "local function f(n) return 1 + f(n + 1) end f(1)", "nested more than 64"},
	{"mutual recursion", "local a, b a = function() return b() end b = function() return a() end a()", "nested more than 64"},
	{"recursion through a table", "local t = {} t.f = function() return t.f() end t.f()", "nested more than 64"},
	{"recursion through sort", "local function f() table.sort({ 2, 1 }, f) end f()", "nested more than 64"},
	{"recursion through an argument", "local function f(g) return g(g) end f(f)", "nested more than 64"},
	{"recursion that fans out", "local function f(n) if n == 0 then return 0 end return f(n - 1) + f(n - 1) end f(60)", "more than 200000 steps"},
	{"Y combinator", "local y = function(f) return (function(x) return f(x(x)) end)(function(x) return f(x(x)) end) end y(function(g) return g end)", "nested more than 64"},
	{"sort whose comparator never agrees", "local t = {} for i = 1, 5000 do t[i] = i end while true do table.sort(t, function() return true end) end", "more than"},
	{"sort of a large table again and again", "local t = {} for i = 1, 1000 do t[i] = -i end while true do table.sort(t) end", "more than"},

	// Memory.
	{"doubling a string", "local s = 'x' while true do s = s .. s end", "bytes of memory"},
	{"doubling in one expression", "local s = 'xxxxxxxx' for i = 1, 64 do s = s .. s .. s .. s .. s .. s .. s .. s end", "bytes of memory"},
	{"rep", "local s = ('x'):rep(1000000000)", "bytes of memory"},
	{"rep whose size overflows", "local s = ('xxxx'):rep(4611686018427387905)", "bytes of memory"},
	{"rep of rep", "local s = 'x' for i = 1, 100 do s = s:rep(1000) end", "bytes of memory"},
	{"concat", "local t = {} for i = 1, 1000 do t[i] = 'xxxxxxxxxx' end local s = 'y' while true do s = table.concat(t, s) end", "more than"},
	{"concat with a large separator", "local t = {} for i = 1, 1000 do t[i] = 1 end return table.concat(t, ('x'):rep(10000))", "bytes of memory"},
	{"format with a width", "return string.format('%999999999d', 1)", "width is at most 100"},
	{"format with many widths", "local f = ('%100d'):rep(100) local s = '' while true do s = s .. string.format('%100s%100s', 1, 2) end", "more than"},
	{"format of a large string", "local s = ('x'):rep(600000) return string.format('%s', s)", "bytes of memory"},
	{"format that is large itself", "return string.format(('%%'):rep(450000))", "more than"},
	{"upper of a large string", "local s = ('x'):rep(700000) return s:upper()", "bytes of memory"},
	{"split into bytes", "return (','):rep(500000):split(',')", "bytes of memory"},
	{"growing a sequence", "local t = {} while true do t[#t + 1] = t end", "bytes of memory"},
	{"growing a table", "local t, i = {}, 0 while true do i = i + 2 t[i] = i end", "bytes of memory"},
	{"growing by strings", "local t, i = {}, 0 while true do i = i + 1 t['k' .. i] = true end", "more than"},
	{"growing and shrinking", "local t, i = {}, 0 while true do i = i + 1 t['k' .. i] = true t['k' .. i - 1] = nil end", "more than"},
	{"huge index", "local t = {} t[67108862] = 1 t[9223372036854775807] = 1 t[-9223372036854775808] = 1 return t", ""},
	{"huge indices", "local t = {} for i = 1, 100000 do t[i * 67108862] = 1 end", "bytes of memory"},
	{"insert at the front", "local t = {} while true do table.insert(t, 1, 1) end", "more than"},
	{"remove from the front", "local t = {} for i = 1, 10000 do t[i] = i end while true do table.remove(t, 1) table.insert(t, 1) end", "more than"},
	{"closures", "local t, i = {}, 0 while true do i = i + 1 local x = i t[i] = function() x = x + 1 return x end end", "bytes of memory"},
	{"chain of closures", "local f = function() end while true do local g = f f = function() return g() end end", "more than"},
	{"deep table", "local t = {} while true do t = { t } end", "bytes of memory"},
	{"wide constructor again and again", "while true do local t = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, a = 1, b = 2, c = 3 } end", "more than"},
	{"numbers as strings", "local t, i = {}, 1000000000 while true do i = i + 1 t[#t + 1] = tostring(i) end", "more than"},
	{"parts of a large string", "local s, t = ('x'):rep(500000), {} for i = 1, 100000 do t[i] = s:sub(i) end", "more than"},
	{"the host's tables", "while true do local t = range(1000) end", "bytes of memory"},
	{"frames", "local function f(n) local a, b, c, d, e = n, n, n, n, n if n == 0 then return 0 end return f(n - 1) end for i = 1, 1000000 do f(60) end", "more than 200000 steps"},

	// Work that a step could hide.
	{"comparing large strings", "local a, b = ('x'):rep(400000), ('x'):rep(400000) while a == b do end", "more than 200000 steps"},
	{"ordering large strings", "local a, b = ('x'):rep(400000), ('x'):rep(400000) while not (a < b) do end", "more than 200000 steps"},
	{"searching large strings", "local s = ('x'):rep(400000) while not s:find('y') do end", "more than 200000 steps"},
	{"searching for what nearly matches", "local s, p = ('a'):rep(400000), ('a'):rep(1000) .. 'b' while not s:find(p) do end", "more than 200000 steps"},
	{"searching for something large", "local s, p = ('a'):rep(400000), ('a'):rep(200000) .. 'b' while not s:find(p) do end", "more than 200000 steps"},
	{"splitting at something large", "local s, p = ('a'):rep(400000), ('a'):rep(200000) .. 'b' while #s:split(p) == 1 do end", "more than 200000 steps"},
	{"hashing large strings", "local s, t = ('x'):rep(400000), {} while not t[s] do end", "more than 200000 steps"},
	{"parsing large strings", "local s = ('1'):rep(400000) while not tonumber(s) do end", "more than 200000 steps"},
	{"length of prefixes", "local s = ('x'):rep(400000) while s:startswith(s) do end", "more than 200000 steps"},
	{"length of suffixes", "local s = ('x'):rep(400000) while s:endswith(s) do end", "more than 200000 steps"},

	{"rebuilding the index of long keys", "local k, t = {}, {} for i = 1, 8 do k[i] = ('x'):rep(30000) .. i end for i = 1, 8 do t[k[i]] = i end while true do t.a = 1 t.a = nil end", "more than 200000 steps"},
	{"a format of %% only", "local f = ('%%'):rep(50000) while true do string.format(f) end", "more than"},
	{"a format of zeros", "local f = '%' .. ('0'):rep(100000) .. 'd' while true do string.format(f, 1) end", "more than 200000 steps"},
	{"searching with equal hashes", "local z = ('\\0'):rep(62) local s, p = (z .. 'ab'):rep(3000), z .. 'b' .. z .. 'a' while not s:find(p) do end", "more than 200000 steps"},

	// Ways out.
	{"pcall", "pcall(function() error('x') end)", "there is no pcall"},
	{"pcall around a limit", "while true do pcall(function() while true do end end) end", "there is no pcall"},
	{"xpcall", "xpcall(1, 2)", "there is no xpcall"},
	{"coroutine", "coroutine.wrap(function() while true do end end)()", "there is no coroutine"},
	{"metatable", "setmetatable({}, { __index = function(t, k) return t[k] end })", "there is no setmetatable"},
	{"the metatable of strings", "getmetatable('').__index.rep = nil", "there is no getmetatable"},
	{"a metamethod by hand", "local t = { __index = error, __len = error, __eq = error, __gc = error } return t.x", ""},
	{"load", "load('while true do end')()", "there is no load"},
	{"loadstring", "loadstring('x = 1')", "there is no loadstring"},
	{"require", "require('os')", "there is no require"},
	{"string.dump", "string.dump(function() end)", "there is no string.dump"},
	{"string.gsub", "('x'):gsub('(.-)*', 'x')", "no method gsub"},
	{"string.match", "('x'):rep(100000):match(('a?'):rep(1000))", "no method match"},
	{"a pattern for find", "return ('aaaaaaaaaaaaaaaaaaaaaaaaaaaa'):find('(a*)*b')", ""},
	{"collectgarbage", "collectgarbage()", "there is no collectgarbage"},
	{"the globals", "return _G", "there is no _G"},
	{"the environment", "local _ENV = {} x = 1", "there are no globals"},
	{"getfenv", "getfenv(0).x = 1", "there is no getfenv"},
	{"os", "os.exit(1)", "there is no os"},
	{"io", "io.open('/etc/passwd')", "there is no io"},
	{"debug", "debug.sethook()", "there is no debug"},
	{"a channel", "channel.make():receive()", "there is no channel"},
	{"a library changed", "string.rep = function() end", "string can't be changed"},
	{"a library changed by its alias", "local s = string s.rep = nil", "string is no value"},
	{"a library walked", "for k in pairs(string) do end", "string is no value"},
	{"a builtin as a table", "local f = string.rep f.x = 1", "a function value has no field"},
	{"varargs", "local function f(...) return #{ ... } end", "no variable arguments"},
	{"a method definition", "local t = {} function t:f() end", "there are no methods"},

	// What ended or fooled other interpreters, gopher-lua's among them (its issues 187, 331, 475, 505 and 524).
	{"a call of what a call returns", "return select(0)(select(1 / 9))", "there is no select"},
	{"concat of many pieces", "local t = {} for i = 1, 300 do t[i] = '{' end return table.concat(t) .. table.concat(t, ',', 1, 300)", ""},
	{"concat out of bounds", "return table.concat({ 1 }, '', -9223372036854775807, 9223372036854775807)", "wants places from 1 to 1"},
	{"recursion until the registry is full", "local function f(n) return n + f(n + 1) end return f(1)", "nested more than"},
	{"many tables at once", "local t = {} for i = 1, 3000 do t[i] = { i, { i } } end return #t", ""},
	{"a key of a string", "local s = 'Lua' s.key = 1", "a string has no fields"},
	{"sort by a comparator that contradicts itself", "local t = { 3, 1, 2, 5, 4 } table.sort(t, function(a, b) return a ~= b end) return #t", ""},
	{"sort by a comparator that changes the table", "local t = { 3, 1, 2 } table.sort(t, function(a, b) t[#t + 1] = 1 return a < b end)", "changed while it was sorted"},
	{"a table that grows in its own loop", "local t = { a = 1 } for k in pairs(t) do t[k .. 'x'] = 1 end", ""},
	{"the least integer", "local n = -9223372036854775807 - 1 return { n / -1 }", "integer overflow"},
	{"the rest by -1 of the least integer", "local n = -9223372036854775807 - 1 return n % -1", ""},
	{"a step of 0", "for i = 1, 2, 0 do end", "step"},
	{"a loop to the largest integer", "local n = 0 for i = 9223372036854775806, 9223372036854775807 do n = n + 1 end return n", ""},

	// What replicas could disagree on.
	{"address of a table", "return tostring({})", "a table has no text"},
	{"address of a function", "return tostring(tostring)", "a function has no text"},
	{"address by format", "return string.format('%s', {})", "a table has no text"},
	{"address by %p", "return string.format('%p', {})", "string.format knows"},
	{"address by concatenation", "return '' .. {}", "wants strings or numbers"},
	{"address by error", "error({})", "must be a string"},
	{"address by order", "return {} < {}", "can't compare"},
	{"address as a key", "return { [{}] = 1 }", "can't be a key"},
	{"address by concat", "return table.concat({ {} })", "wants strings or numbers"},
	{"address by sort", "table.sort({ {}, {} })", "can't compare"},
	{"random", "return math.random()", "there is no math.random"},
	{"the time", "return os.clock()", "there is no os"},
	{"floats", "return 1 / 3 * 3.0", "64-bit integers"},
	{"not a number", "return 0 / 0", "division by zero"},
	{"overflow", "return 9223372036854775807 + 1", "integer overflow"},
	{"a panic's text", "return broken()", "internal error in broken"},

	// What outlives a call.
	{"a counter in a closure", "local n = 0 return { run = function() n = n + 1 return n end }", "local of the file"},
	{"a counter in a table", "local t = { n = 0 } return { run = function() t.n = t.n + 1 end }", "made while the file was loaded"},
	{"a counter hidden in a function", "local function mk() local n = 0 return function() n = n + 1 return n end end local c = mk() return { run = function() return c() end }", "made while the file was loaded"},
	{"a counter in the export", "local M = {} M.run = function() M.n = 1 end return M", "made while the file was loaded"},
	{"a global", "x = 1", "there are no globals"},
	{"writes while loading", "local x = put('a', 'b') return {}", "only be called inside a handler"},
	{"a loop while loading", "local function f() while true do end end local x = f() return {}", "more than 200000 steps"},
	{"memory while loading", "local x = ('x'):rep(100000000) return {}", "bytes of memory"},
	{"swallowed limits", "swallow() return 1", "more than 200000 steps"},

	// Sources.
	{"10 MB", "return {} --" + strings.Repeat("x", 10<<20), "the limit is 131072"},
	{"10,000 parentheses", "return " + strings.Repeat("(", 10_000) + "1" + strings.Repeat(")", 10_000), "nested more than"},
	{"10,000 open parentheses", "return " + strings.Repeat("(", 10_000), "nested more than"},
	{"10,000 tables", "return " + strings.Repeat("{", 10_000) + strings.Repeat("}", 10_000), "nested more than"},
	{"10,000 indices", "local t = {} return " + strings.Repeat("t[", 10_000) + "1" + strings.Repeat("]", 10_000), "nested more than"},
	{"5,000 functions", "return " + strings.Repeat("function() ", 5_000) + strings.Repeat("end ", 5_000), "nested more than"},
	{"5,000 blocks", strings.Repeat("do ", 5_000) + strings.Repeat("end ", 5_000), "nested more than"},
	{"4,000 ifs", strings.Repeat("if 1 then ", 4_000) + strings.Repeat("end ", 4_000), "nested more than"},
	{"3,000 elses", "if 1 then " + strings.Repeat("else if 1 then ", 3_000) + strings.Repeat("end ", 3_000) + "end", "nested more than"},
	{"4,000 elseifs", "local x = 0 if x == 1 then " + strings.Repeat("elseif x then ", 4_000) + "end", ""},
	{"4,000 loops", strings.Repeat("while 1 do ", 4_000) + strings.Repeat("end ", 4_000), "nested more than"},
	{"5,000 repeats", strings.Repeat("repeat ", 5_000) + strings.Repeat("until 1 ", 5_000), "nested more than"},
	{"10,000 nots", "return " + strings.Repeat("not ", 10_000) + "1", "operators in one expression"},
	{"10,000 minuses", "return " + strings.Repeat("- ", 10_000) + "1", "operators in one expression"},
	{"10,000 #", "return " + strings.Repeat("# ", 10_000) + "''", "operators in one expression"},
	{"10,000 ..", "return 'a'" + strings.Repeat("..'a'", 10_000), "operators in one expression"},
	{"10,000 +", "return 1" + strings.Repeat("+1", 10_000), "operators in one expression"},
	{"10,000 ^", "return 1" + strings.Repeat("^1", 10_000), "operators in one expression"},
	{"10,000 and", "return 1" + strings.Repeat(" and 1", 10_000), "operators in one expression"},
	{"10,000 <", "return 1" + strings.Repeat("<1", 10_000), "operators in one expression"},
	{"10,000 calls", "local f return f" + strings.Repeat("()", 10_000), "nested more than"},
	{"10,000 fields", "local t return t" + strings.Repeat(".t", 10_000), "nested more than"},
	{"10,000 methods", "return ('')" + strings.Repeat(":len()", 10_000), "nested more than"},
	{"10,000 strings as arguments", "local f return f" + strings.Repeat("''", 10_000), "nested more than"},
	{"10,000 statements", strings.Repeat("local x = 1 ", 5_000), "more than 200 locals"},
	{"nodes", "return {" + strings.Repeat("1,", 30_000) + "}", "more than 20000 nodes"},
	{"arguments", "return math.max(" + strings.Repeat("1,", 5_000) + "1)", "more than 200 arguments"},
	{"parameters", "return function(" + strings.Repeat("a,", 5_000) + "a) end", "more than 200 locals"},
	{"names", "local " + strings.Repeat("a,", 5_000) + "a", "more than 200 locals"},
	{"outer locals", manyCaptures(), "more than 200 outer locals"},
	{"slots", "return " + strings.Repeat("math.max("+strings.Repeat("1,", 150), 15) + "1" + strings.Repeat(")", 15), "slots"},
	{"a long string that is not closed", "return [==[" + strings.Repeat("]=]", 10_000), "not closed"},
	{"a long comment that is not closed", "--[==[" + strings.Repeat("]=]", 10_000), "not closed"},
	{"zero bytes", "return \x00", "unexpected character"},
	{"bytes that are no text", "return \xff\xfe", "unexpected character"},
	{"a byte order mark", "\xef\xbb\xbfreturn {}", "unexpected character"},
	{"a number of 10,000 digits", "return " + strings.Repeat("9", 10_000), "does not fit"},
	{"a name of 10,000 letters", "return " + strings.Repeat("x", 10_000), "unknown name"},
	{"an error text of 100 KB", "error(('x'):rep(100000))", "xxx ... xxx"},
}

// manyCaptures is a function that uses 300 locals of two functions around it.
func manyCaptures() string {
	var b, uses strings.Builder
	for i := range 300 {
		if i%150 == 0 {
			b.WriteString("return function() ")
		}
		fmt.Fprintf(&b, "local a%d ", i)
		fmt.Fprintf(&uses, "a%d() ", i)
	}
	return b.String() + "return function() " + uses.String() + "end end end"
}

// file makes a file of what is a function's body.
func file(source string) string {
	if strings.Contains(source, "return { run") || strings.HasSuffix(source, "return {}") || strings.HasSuffix(source, "return M") {
		return source
	}
	return "return { run = function() " + source + "\nend }"
}

func TestAttacks(t *testing.T) {
	require.GreaterOrEqual(t, len(attacks), 60)
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			source := file(a.source)
			o, grown := attacked(source)
			if a.want == "" {
				require.Empty(t, o.err.Reason)
			} else {
				require.Contains(t, o.err.Reason, a.want)
			}
			require.LessOrEqual(t, o.usage.Steps, attackLimits.Steps)
			require.LessOrEqual(t, o.usage.Bytes, attackLimits.Bytes)
			require.LessOrEqual(t, len(o.err.Reason), 600)
			// Everything that was ever allocated, garbage too, from source to end.
			require.Less(t, grown, uint64(2*attackLimits.Bytes+int64(400*min(len(source), attackBounds.Source))+(1<<20)), "bytes allocated")
		})
	}
}

// attacked runs a source, and says how much was allocated for it.
func attacked(source string) (outcome, uint64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	o := compileAndRun(source, attackBounds, attackLimits)
	runtime.ReadMemStats(&after)
	return o, after.TotalAlloc - before.TotalAlloc
}
