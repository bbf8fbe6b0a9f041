package main

import (
	"math/rand/v2"
	"regexp"
)

// declarations are the variables that all grown scripts have: numbers, strings, a list
// of strings, one of numbers, any table, and functions.
const declarations = `local n1, n2, n3 = 1, 100, -7
local s1, s2, s3 = 'a', 'key', ''
local l, m, t = { 'x', 'y' }, { 3, 1, 2 }, { a = 1 }
local function f(x) return x end
local function g(x, y) return f(x) + f(y) end
`

// templates of statements and expressions. A capital is replaced: N by a number, S by a
// string, K by a key, C by a constant, V and W by the names of a variable, B by a statement.
var templates = map[byte][]string{
	'B': {
		"V = (N) % 1000000", "V = (N) % 1000000", "V = N % C + 1",
		"W = (S):sub(1, C)", "W = (S):sub(-C)", "W = ('a'):rep(C)", "W = ('ab'):rep(C) .. 'c'", "W = W:rep(3):sub(1, 100000)",
		"t[K] = N", "t[K] = S", "t[K] = nil", "t[K] = nil", "t = {}", "t = { a = N, b = S, [K] = 1 }", "t = { N, N, S, [K] = N }",
		"l[#l + 1] = S", "l[#l] = nil", "l = {}", "l = { S, S, S }", "l = (S):split('a')", "l = (S):split(s2 == '' and ',' or s2)",
		"table.insert(l, 1, S)", "table.remove(l, 1)", "table.remove(l)", "table.sort(l)", "W = table.concat(l, (S):sub(1, 10)):sub(1, 100000)",
		"m[#m + 1] = N", "m[#m] = nil", "m = {}", "table.insert(m, 1, N)", "table.remove(m, 1)", "table.sort(m)",
		"table.sort(m, function(a, b) return a > b end)", "table.sort(m, function(a, b) return false end)",
		"for i = 1, C % 200 do B end", "for i = 1, C % 200 do l[i] = S end", "for i = 1, C % 2000 do m[i] = i end",
		"for i = 1, C % 200 do t[-i] = S end", "for i = 1, C % 200 do t[s2 .. i] = i end", "for i = 1, C % 200 do t[-i] = nil end",
		"for k, v in pairs(t) do B end", "for k, v in pairs(t) do t[k] = nil end", "for i, v in ipairs(l) do B end",
		"if S == S then B else B end", "if S < S then B end", "if N > N then B elseif N == N then B end",
		"while N < C do B break end", "repeat B until true", "do local a, b, c = N, S, {} B end",
		"do local x = N f = function(y) x = x + 1 return y end end", "local q = function() return { t, l, m } end",
		"put('/k/' .. N % 1000, S)", "put('/k/' .. W:sub(1, 1000), S)", "delete('/k/' .. N % 1000)", "create('/k/' .. N % 1000, S)", "cas('/k/' .. N % 1000, S, S)",
		"t.r = range('/k/', 1 + N % 50)", "l = children('/k/', 1 + N % 50)", "V = count('/k/')", "t.s = stat('/k/' .. N % 1000)", "notify('/k/x', S)",
	},
	'N': {
		"V", "V", "V", "C", "C", "#S", "#l", "#m", "#W", "((S):find(S) or 0)", "(W:find(W) or 0)", "((S):byte(N) or 0)", "(tonumber(S) or 0)", "(tonumber(S, 36) or 0) % 1000",
		"math.max(N, N)", "math.abs(N)", "(N % 97)", "(N / 3)", "(N % 1000 * (N % 1000))", "(N % 1000000 + N % 1000000)", "-V", "f(N)", "g(N % 1000, N % 1000)",
		"(S < S and N or N)", "(S == S and N or N)", "(W == W and N or N)", "#{ N, N, N }", "(function(x) return x end)(N)", "(m[N % 10 + 1] or 0)", "((S):startswith(S) and 1 or 0)", "(W:endswith(W) and 1 or 0)",
	},
	'S': {
		"W", "W", "W", "''", "'a'", "(S):sub(N)", "(W):sub(N, N)", "(W .. S)", "(N .. '')", "(N .. 'a' .. N .. S)", "W:upper()", "W:lower()", "('a'):rep(C)", "tostring(N)",
		"string.format('%d%s%x', N, S, N)", "string.format('%20d%-30s', N, S)", "string.format('%100s', S)", "string.format(('%%'):rep(C))", "string.char(N % 100 + 50, N % 100 + 50)",
		"(get('/k/' .. N % 1000) or '')", "(l[N % 10 + 1] or '')", "type(t)", "(W < W and S or S)",
	},
	'K': {"S", "W", "V", "V", "N", "C", "'a'", "'b'", "true", "(W .. V)"},
	'C': {"0", "1", "2", "3", "7", "8", "9", "15", "16", "17", "31", "32", "33", "62", "63", "64", "65", "127", "128", "200", "1000", "4095", "4096", "20000", "100000"},
	'V': {"n1", "n2", "n3"},
	'W': {"s1", "s2", "s3"},
}

// hole is a place in a template: a capital that stands alone.
var hole = regexp.MustCompile(`\b[BNSKCVW]\b`)

func statements(r *rand.Rand, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = grow(r, 'B', 4)
	}
	return list
}

// grow is something of a kind, nested as deep as that.
func grow(r *rand.Rand, kind byte, depth int) string {
	choices := templates[kind]
	if depth <= 0 {
		switch kind {
		case 'N':
			choices = choices[:5]
		case 'S':
			choices = choices[:5]
		case 'B':
			choices = choices[:3]
		}
	}
	return hole.ReplaceAllStringFunc(choices[r.IntN(len(choices))], func(h string) string { return grow(r, h[0], depth-1) })
}
