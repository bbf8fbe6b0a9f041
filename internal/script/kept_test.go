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

// keeps are sources that keep much of one thing, with handler as their only root.
var keeps = map[string]string{
	"next to nothing":     `return { handler = function() end }`,
	"a counter":           `local key = "/counter" return { handler = function(r) local n = tonumber(get(key) or "0") + 1 put(key, n) return n end }`,
	"assignments":         inHandler("local x", "x = 1 "),
	"empty functions":     inHandler("local x", "x=function()end "),
	"functions":           inHandler("local x", "x = function(a, b, c) return a end "),
	"functions over":      inHandler("local x", "do local function y() return x end x = y end "),
	"nested functions":    inHandler("local x", "x=function()return function()return function()end end end "),
	"captured":            inHandler("local a, b, c = 1, 2, 3", "do local x = function() a = b return c end end "),
	"calls":               inHandler("local f", "f(1, 2, 3) "),
	"calls of builtins":   inHandler("", "tostring(1) "),
	"calls of the host":   inHandler("", "put(1, 2) "),
	"empty calls":         inHandler("local f", "f() "),
	"methods":             inHandler("local s = 'a'", "s:sub(1) "),
	"named calls":         inHandler("local a_rather_long_name_for_a_function_if_you_ask_me", "a_rather_long_name_for_a_function_if_you_ask_me() "),
	"fields":              inHandler("local t = {}", "t.a = t.b "),
	"fields of fields":    inHandler("local t = {}", "t.a.b.c.d.e = 1 "),
	"several assignments": inHandler("local a, b, c, t = 1, 2, 3, {}", "a, b, c, t[1] = 1, 2, 3, 4 "),
	"arithmetic":          inHandler("local x = 1", "x=x+x*x-x/x%x "),
	"constants":           inHandler("local x = 1", "x=x+1 "),
	"comparisons":         inHandler("local x = 1", "x=x<x "),
	"conditions":          inHandler("local x = 1", "if x<1 then x=1 elseif x then x=2 else x=3 end "),
	"empty conditions":    inHandler("local x = 1", "if x then end "),
	"logic":               inHandler("local x = 1", "x=x and x or not x "),
	"loops":               inHandler("local x = 1", "while x do end "),
	"repeats":             inHandler("local x = 1", "repeat until x "),
	"for":                 inHandler("local x = 1", "for i=1,2 do end "),
	"for in":              inHandler("local t = {}", "for k,v in pairs(t) do end "),
	"for in, of one":      inHandler("local t = {}", "for k in ipairs(t) do end "),
	"for, captured":       inHandler("local t = {}", "for k,v in pairs(t) do v=function()k=1 end end "),
	"blocks":              inHandler("", "do end "),
	"breaks":              inHandler("", "while true do break end "),
	"locals":              inHandler("", "do local a,b,c,d,e,f,g,h end "),
	"concatenations":      inHandler("local x = 'a'", "x=x..x..x..x "),
	"concatenation":       inHandler("local x = 'a'", "x=x..x "),
	"empty tables":        inHandler("local x", "x={} "),
	"tables":              inHandler("local x", "x={1,2,3,a=1} "),
	"small items":         inHandler("local x", "x={1} "),
	"literals":            `return { handler = function() local t = {} ` + numbered("t[%d]='%04d' ", 2500) + ` end }`,
	"long literals":       `return { handler = function() return "` + strings.Repeat("x", 60_000) + `" end }`,
	"a comment":           `--` + strings.Repeat("x", 60_000) + "\nreturn { handler = function() end }",
	"unreachable code":    `local function no() local x ` + strings.Repeat("x=1 ", 3000) + ` end return { handler = function() end }`,
	"unreachable values":  made(`("x"):rep(1000000)`, `nil`),
	"a string":            made(`("x"):rep(1000000)`, `kept`),
	"strings of 1025":     made(`listed(500, function(i) return ("x"):rep(1025) end)`, `kept`),
	"strings of 33000":    made(`listed(50, function(i) return ("x"):rep(33000) end)`, `kept`),
	"a part of a string":  made(`("x"):rep(4000000):sub(1, 100000)`, `kept`),
	"a list":              made(`listed(10000, function(i) return i end)`, `kept`),
	"a list of strings":   made(`listed(5000, function(i) return "s" .. i end)`, `kept`),
	"parts of a string":   made(`parts()`, `kept`),
	"the same string":     made(`same()`, `kept`),
	"tables in tables":    made(`listed(3000, function(i) return {} end)`, `kept`),
	"deep tables":         made(`deep()`, `kept`),
	"fields of a table":   made(`named(5000)`, `kept`),
	"few fields":          made(`listed(1000, function(i) return { a = 1, b = 2, c = 3, d = 4, e = 5 } end)`, `kept`),
	"nine fields":         made(`listed(500, function(i) return { a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8, i = 9 } end)`, `kept`),
	"2049 fields":         made(`named(2049)`, `kept`), // the largest index for its fields
	"integers as keys":    made(`numbers(5000)`, `kept`),
	"room left":           made(`left()`, `kept`),
	"closures":            made(`listed(3000, function(i) return function() return i end end)`, `kept`),
	"cells":               made(`listed(2000, function(i) local x = i return function() x = x + 1 return x end end)`, `kept`),
	"cells and more":      made(`listed(1000, function(i) local a, b, c, d = i, i, i, i return function() a = b + c + d b = c return a end end)`, `kept`),
}

func inHandler(before, statement string) string {
	return "return { handler = function() " + before + " " + strings.Repeat(statement, 60_000/len(statement)/4) + " end }"
}

func numbered(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i, i)
	}
	return b.String()
}

// made is a file whose top level makes a value, and whose handler uses some.
func made(value, used string) string {
	return `local x
local function listed(n, make) local t = {} for i = 1, n do t[i] = make(i) end return t end
local function named(n) local t = {} for i = 1, n do t["k" .. i] = i end return t end
local function numbers(n) local t = {} for i = 1, n do t[i * 3] = i end return t end
local function deep() local t = {} for i = 1, 3000 do t = { t } end return t end
local function same() local s, t = ("x"):rep(1000), {} for i = 1, 900 do t[i] = s end return t end
local function parts() local s, t = ("x"):rep(100000), {} for i = 1, 1000 do t[i] = s:sub(i, i + 100) end return t end
local function left() local t = {} for i = 1, 3000 do t["k" .. i] = i t["k" .. i] = nil end t.a = 1 return t end
local kept = ` + value + `
return { handler = function() return ` + used + ` end }`
}

var keepLimits = script.Limits{Steps: 10_000_000, Bytes: 64 << 20, Depth: 64}

func loadToKeep(t testing.TB, source string) *script.Module {
	p, err := script.Compile([]byte(source), keepHost, script.Bounds{})
	require.NoError(t, err)
	m, _, err := p.Load(keepLimits)
	require.NoError(t, err)
	return m
}

var keepHost = []script.Function{
	{Name: "get", Min: 1, Max: 1, Do: func(*script.Call, []script.Value) (script.Value, error) { return script.Nil(), nil }},
	{Name: "put", Min: 2, Max: 2, Do: func(*script.Call, []script.Value) (script.Value, error) { return script.Nil(), nil }},
}

func handlerOf(m *script.Module) script.Value {
	t, _ := m.Export().AsTable()
	return t.Field("handler")
}

// What is counted is at least what Go's heap holds, and not much more.
func TestKeptIsCountedInFull(t *testing.T) {
	for name, source := range keeps {
		t.Run(name, func(t *testing.T) {
			const copies = 20
			var counted int64
			var handlers [copies]script.Value
			real := heapOf(func() {
				for i := range handlers {
					m := loadToKeep(t, source)
					handlers[i] = handlerOf(m)
					n, err := m.Keep(1<<40, handlers[i])
					require.NoError(t, err)
					counted = n
				}
			}) / copies
			runtime.KeepAlive(&handlers)
			factor := float64(counted) / float64(real)
			t.Logf("%8d counted, %8d in the heap: %.2f %s", counted, real, factor, name)
			require.GreaterOrEqual(t, counted, real)
			if real > 10_000 && !countedTwice[name] {
				require.Less(t, factor, keptFactor)
			}
		})
	}
}

// keptFactor is how many bytes are counted at most for one that is kept.
const keptFactor = 4.0

// countedTwice is what is counted though the memory isn't there, or is shared.
var countedTwice = map[string]bool{"unreachable code": true, "the same string": true}

func heapOf(make func()) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&before)
	make()
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}
