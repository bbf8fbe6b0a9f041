package script_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// grower makes scripts from a small grammar. Names are drawn from what is in
// scope and mostly of the kind that is wanted, so that nearly all scripts
// compile and many run to their end.
type grower struct {
	r     *rand.Rand
	raw   []byte // for string literals
	b     strings.Builder
	scope []grown // locals, innermost last
	fixed int     // how many of them can't be assigned to: they are the file's
	depth int
	size  int
}

// grown is a local and its kind: n(umber), s(tring), t(able) or f(unction).
type grown struct {
	name string
	kind byte
}

func (g *grower) pick(choices ...string) string { return choices[g.r.IntN(len(choices))] }

func (g *grower) kind() byte { return "nnstt"[g.r.IntN(5)] }

func (g *grower) file() string {
	for range g.r.IntN(4) {
		kind := g.kind()
		name := g.pick("a", "b", "c")
		g.b.WriteString("local " + name + " = " + g.literal(kind) + "\n")
		g.scope = append(g.scope, grown{name, kind})
	}
	g.fixed = len(g.scope)
	g.b.WriteString("return { run = function(x, y)\n")
	g.function(grown{"x", 'n'}, grown{"y", 's'})
	g.b.WriteString("end }\n")
	return g.b.String()
}

func (g *grower) function(params ...grown) {
	top := len(g.scope)
	g.scope = append(g.scope, params...)
	g.block(6)
	if g.r.IntN(4) != 0 {
		g.b.WriteString("return " + g.expression(g.kind(), 3) + "\n")
	}
	g.scope = g.scope[:top]
}

func (g *grower) block(most int) {
	top := len(g.scope)
	for range 1 + g.r.IntN(most) {
		g.statement()
	}
	if g.depth > 1 {
		g.scope = g.scope[:top]
	}
}

func (g *grower) inner(open, end string, locals ...grown) {
	g.b.WriteString(open)
	top := len(g.scope)
	g.scope = append(g.scope, locals...)
	g.block(3)
	g.scope = g.scope[:top]
	g.b.WriteString(end + "\n")
}

func (g *grower) statement() {
	g.size++
	g.depth++
	defer func() { g.depth-- }()
	kind := g.r.IntN(16)
	if g.depth > 5 || g.size > 60 {
		kind %= 8
	}
	switch kind {
	case 0, 1, 2:
		l := grown{g.pick("a", "b", "c", "d", "e"), g.kind()}
		g.b.WriteString("local " + l.name + " = " + g.expression(l.kind, 3) + "\n")
		g.scope = append(g.scope, l)
	case 3, 4:
		g.assignment()
	case 5, 6:
		t := g.expression('t', 0)
		if strings.HasPrefix(t, "{") {
			return
		}
		g.b.WriteString(t + "[" + g.expression("ns"[g.r.IntN(2)], 1) + "] = " + g.expression(g.kind(), 2) + "\n")
	case 7:
		g.call()
	case 8:
		g.inner("if "+g.condition(2)+" then\n", "else")
		g.block(2)
		g.b.WriteString("end\n")
	case 9, 10:
		g.inner("for i = "+g.expression('n', 1)+", "+g.expression('n', 1)+g.pick("", ", 3", ", -2")+" do\n", g.pick("end", "break end"), grown{"i", 'n'})
	case 11, 12:
		g.inner("for k, v in "+g.pick("pairs", "ipairs")+"("+g.expression('t', 2)+") do\n", "end", grown{"k", "ns"[g.r.IntN(2)]}, grown{"v", 'n'})
	case 13:
		g.inner("while "+g.condition(2)+" do\n", g.pick("break end", "end"))
	case 14:
		g.inner("repeat\n", "until "+g.condition(2))
	case 15:
		name := g.pick("f", "g")
		g.b.WriteString("local function " + name + "(p, q)\n")
		if g.r.IntN(3) == 0 {
			g.b.WriteString("if p < 0 then " + name + "(p - 1, q) end\n")
		}
		g.function(grown{"p", 'n'}, grown{"q", 's'})
		g.b.WriteString("end\n")
		g.scope = append(g.scope, grown{name, 'f'})
	}
}

func (g *grower) assignment() {
	if len(g.scope) == g.fixed {
		return
	}
	l := g.scope[g.fixed+g.r.IntN(len(g.scope)-g.fixed)]
	for _, file := range g.scope[:g.fixed] {
		if l.kind == 'f' || file.name == l.name {
			return // the innermost of that name could be the file's
		}
	}
	g.b.WriteString(l.name + " = " + g.expression(l.kind, 3) + "\n")
}

func (g *grower) call() {
	switch g.r.IntN(5) {
	case 0:
		g.b.WriteString("put('k', " + g.expression(g.kind(), 2) + ")\n")
	case 1:
		g.b.WriteString("table.insert(" + g.expression('t', 1) + ", " + g.expression(g.kind(), 2) + ")\n")
	case 2:
		g.b.WriteString("table.sort(" + g.expression('t', 1) + g.pick(")", ", function(a, b) return b < a end)") + "\n")
	case 3:
		g.b.WriteString("table.remove(" + g.expression('t', 1) + ")\n")
	case 4:
		if f := g.local('f'); f != "" {
			g.b.WriteString(f + "(" + g.expression('n', 1) + ", " + g.expression('s', 1) + ")\n")
		}
	}
}

// local is the name of a local of a kind, if there is one.
func (g *grower) local(kind byte) string {
	var names []string
	for _, l := range g.scope {
		if l.kind == kind {
			names = append(names, l.name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return g.pick(names...)
}

func (g *grower) literal(kind byte) string {
	switch kind {
	case 'n':
		return g.pick("0", "1", "2", "3", "5", "10", "100", "-1", "-7", "9223372036854775807", "-9223372036854775808", "0x10")
	case 't':
		return g.pick("{}", "{ 1, 2, 3 }", "{ a = 1, b = 2 }", "{ 3, 1, [5] = 2 }", "{ 'x', 'y' }", "{ [true] = 1, [-1] = 2 }")
	}
	if len(g.raw) > 0 && g.r.IntN(2) == 0 {
		from := g.r.IntN(len(g.raw))
		var b strings.Builder
		for _, c := range g.raw[from:min(from+8, len(g.raw))] {
			fmt.Fprintf(&b, "\\%03d", c)
		}
		return `"` + b.String() + `"`
	}
	return g.pick(`""`, `"a"`, `"key"`, `"1"`, `"12"`, `"%"`, `"a,b"`, `","`)
}

func (g *grower) expression(kind byte, depth int) string {
	if g.r.IntN(40) == 0 {
		kind = "nst"[g.r.IntN(3)] // the wrong one, perhaps
	}
	if depth <= 0 || g.r.IntN(4) == 0 {
		if name := g.local(kind); name != "" && g.r.IntN(4) != 0 {
			return name
		}
		return g.literal(kind)
	}
	depth -= 1 + g.r.IntN(2)
	switch kind {
	case 'n':
		return g.number(depth)
	case 's':
		return g.string(depth)
	}
	return g.table(depth)
}

func (g *grower) number(depth int) string {
	n, s, t := func() string { return g.expression('n', depth) }, func() string { return g.expression('s', depth) }, func() string { return g.expression('t', depth) }
	switch g.r.IntN(12) {
	case 0:
		return "#" + s()
	case 1:
		return "#" + t()
	case 2:
		return "(tonumber(" + s() + ") or " + n() + ")"
	case 3:
		return "math." + g.pick("min", "max") + "(" + n() + ", " + n() + ")"
	case 4:
		return "(" + s() + "):len()"
	case 5:
		return "(string.find(" + s() + ", " + s() + ") or " + n() + ")"
	case 6:
		return "(" + g.condition(depth) + " and " + n() + " or " + n() + ")"
	case 7:
		return "-" + n()
	case 8:
		return "(function() return " + n() + " end)()"
	}
	return "(" + n() + " " + g.pick("+", "-", "*", "/", "%") + " " + n() + ")"
}

func (g *grower) string(depth int) string {
	n, s, t := func() string { return g.expression('n', depth) }, func() string { return g.expression('s', depth) }, func() string { return g.expression('t', depth) }
	switch g.r.IntN(10) {
	case 0:
		return "tostring(" + n() + ")"
	case 1:
		return "(" + s() + "):sub(" + n() + ", " + n() + ")"
	case 2:
		return "(" + s() + "):rep(" + n() + ")"
	case 3:
		return "(" + s() + "):" + g.pick("upper", "lower") + "()"
	case 4:
		return "table.concat(" + t() + ", " + s() + ")"
	case 5:
		return "string.format('" + g.pick("%5d|%s", "%x%-7s", "%03d%s") + "', " + n() + ", " + s() + ")"
	case 6:
		return "(get(" + s() + ") or " + s() + ")"
	case 7:
		return "type(" + t() + ")"
	}
	return "(" + s() + " .. " + g.expression("ns"[g.r.IntN(2)], depth) + ")"
}

func (g *grower) table(depth int) string {
	switch g.r.IntN(4) {
	case 0:
		return "(" + g.expression('s', depth) + "):split(" + g.literal('s') + ")"
	case 1:
		return "range(" + g.pick("0", "1", "5", "12") + ")"
	}
	return "{ " + g.expression(g.kind(), depth) + ", " + g.expression('n', depth) + ", k = " + g.expression(g.kind(), depth) + ", [" + g.expression('s', depth) + "] = " + g.expression('n', depth) + " }"
}

func (g *grower) condition(depth int) string {
	switch g.r.IntN(5) {
	case 0:
		return "not " + g.condition(0)
	case 1:
		return "(" + g.condition(0) + g.pick(" and ", " or ") + g.condition(0) + ")"
	case 2:
		return g.expression('s', depth) + " " + g.pick("==", "~=", "<", ">=") + " " + g.expression('s', depth)
	}
	return g.expression('n', depth) + " " + g.pick("==", "~=", "<", "<=", ">", ">=") + " " + g.expression('n', depth)
}
