package apply

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// growth draws sources of extensions: from its bytes first, so that a fuzzer can
// change one choice and leave the others, and then from rnd.
type growth struct {
	bytes []byte
	rnd   *rand.Rand
	depth int
	// greedy sources exceed their limits often, so that some come to be disabled.
	greedy bool
}

func (g *growth) below(n int) int {
	if len(g.bytes) > 0 {
		b := g.bytes[0]
		g.bytes = g.bytes[1:]
		return int(b) % n
	}
	return g.rnd.IntN(n)
}

func (g *growth) chance(n int) bool { return g.below(n) == n-1 }

func pick[T any](g *growth, from ...T) T { return from[g.below(len(from))] }

func (g *growth) dir() string { return pick(g, "/a/", "/a/", "/b/", "/a/b/", "/c/") }

func (g *growth) key() string {
	return pick(g, "/a/", "/a/", "/b/", "/b/", "/a/b/", "/c/") + pick(g, "1", "1", "2", "3")
}

// source is an extension over a few keys that all of them share.
func (g *growth) source() string {
	var b strings.Builder
	if g.chance(3) {
		b.WriteString("local function twice(s) return s .. s end\n")
	}
	b.WriteString(`return { scope = { "/a/", "/b/"` + pick(g, "", "", `, "/a/b/"`, `, "/c/"`, `, "/c/1"`) + " },\n")
	ops := map[string]bool{}
	b.WriteString("operations = {")
	for range g.below(4) {
		op := pick(g, "put", "put", "read", "delete", "txn", "block")
		ops[op] = true
		fmt.Fprintf(&b, " { op = %q, %s },", op, pick(g, `key = "/a/1"`, `key = "/b/2"`, `prefix = "/b/"`, `prefix = "/a/b/"`, `key = "/c/1"`, `prefix = "/c/"`))
	}
	b.WriteString(" },\nevents = {")
	events := g.below(4)
	if len(ops) == 0 {
		events++
	}
	for range events {
		fmt.Fprintf(&b, " { event = %q, %s },", pick(g, "created", "created", "modified", "deleted", "expired"),
			pick(g, `key = "/a/1"`, `prefix = "/a/"`, `prefix = "/b/"`, `key = "/b/3"`, `prefix = "/a/b/"`))
	}
	b.WriteString(" },\n")
	for _, op := range []string{"put", "read", "delete", "txn", "block"} {
		if ops[op] {
			fmt.Fprintf(&b, "%s = function(r)\n%s%s\nend,\n", op, g.block(op), g.result(op))
		}
	}
	if events > 0 {
		fmt.Fprintf(&b, "event = function(r)\n%s\nend,\n", g.block("event"))
	}
	b.WriteString("}")
	return b.String()
}

func (g *growth) block(op string) string {
	g.depth++
	defer func() { g.depth-- }()
	var b strings.Builder
	for range 1 + g.below(3) {
		b.WriteString(g.statement(op) + "\n")
	}
	return b.String()
}

func (g *growth) statement(op string) string {
	if g.greedy && g.chance(6) {
		return "while true do put(r.key, 1) end"
	}
	n := 22
	if g.depth > 3 {
		n = 14
	}
	switch g.below(n) {
	default:
		return fmt.Sprintf("put(%s, %s)", g.keyExpr(), g.value())
	case 3:
		return fmt.Sprintf("put(%s, %s, %s)", g.keyExpr(), g.value(), pick(g, "r.lease or 0", "0", "1", "2"))
	case 4, 5:
		return fmt.Sprintf("delete(%s)", g.keyExpr())
	case 6:
		return fmt.Sprintf("create(%s, %s)", g.keyExpr(), g.value())
	case 7:
		return fmt.Sprintf("cas(%s, %s, %s)", g.keyExpr(), pick(g, "nil", `"1"`, "r.value"), g.value())
	case 8:
		return fmt.Sprintf("notify(%s, %s)", g.keyExpr(), g.value())
	case 9:
		return map[string]string{"event": "suppress()", "block": `block(` + g.keyExpr() + `)`}[op]
	case 10:
		return fmt.Sprintf("if r.lease and r.lease > 0 then monitor(%s, %s) end", g.keyExpr(), g.value())
	case 11:
		return pick(g, `error("no")`, `put("/elsewhere", "1")`, `local x = {} x[nil] = 1`, "local y = 1 + r", "while true do end", "while true do put(r.key, 1) end", `put("/a/1", ("x"):rep(5000))`, "")
	case 14, 15, 16:
		return fmt.Sprintf("if %s then\n%selse\n%send", g.condition(), g.block(op), g.block(op))
	case 17, 18:
		return fmt.Sprintf("for i = 1, %d do\n%send", g.below(5), g.block(op))
	case 19:
		return fmt.Sprintf("for i, kv in ipairs(range(%s%s)) do\nlocal k = kv.key\n%sput(k, kv.value .. kv.version)\nend", g.prefix(), pick(g, "", ", 2", ", 0"), g.block(op))
	case 20:
		return fmt.Sprintf("for k, v in pairs({ a = 1, b = %s, [3] = 2, [true] = 3 }) do\n%send", g.value(), g.block(op))
	case 21:
		return fmt.Sprintf("for i, name in ipairs(children(%s)) do put(%s, name) end", g.prefix(), g.keyExpr())
	}
}

func (g *growth) prefix() string { return pick(g, `"/a/"`, `"/b/"`, `"/a/b/"`, `"/c/"`, `"/a/b"`) }

func (g *growth) keyExpr() string {
	switch g.below(8) {
	case 0:
		return "r.key"
	case 1:
		return g.prefix() + ` .. (tonumber(r.value or "1") or 1) % 3`
	case 2:
		return `"/b/" .. revision() % 4`
	}
	return fmt.Sprintf("%q", g.key())
}

func (g *growth) value() string {
	return pick(g, `"1"`, "2", `r.value or "none"`, "count("+g.prefix()+")", "revision()", "client()",
		fmt.Sprintf(`(get(%q) or "0") .. "x"`, g.key()), fmt.Sprintf(`(tonumber(get(%q) or "0") or 0) + 1`, g.key()), "#r.key * 7")
}

func (g *growth) condition() string {
	return pick(g, fmt.Sprintf("get(%q)", g.key()), "count("+g.prefix()+") < 3", `r.value == "1"`, "revision() % 2 == 0",
		`client() == "alice"`, fmt.Sprintf("create(%q, \"c\")", g.key()), `r.key:sub(1, 3) == "/a/"`)
}

func (g *growth) result(op string) string {
	switch g.below(7) {
	case 0:
		return ""
	case 1:
		return "return " + g.value()
	case 2:
		return "return stat(r.key)"
	case 3:
		return "return range(" + g.prefix() + ")"
	case 4:
		return "return { key = r.key, value = " + g.value() + " }"
	case 5:
		return pick(g, "return true", "return false", "return -1", "return 3", "return {}", "return function() end")
	}
	return "return " + pick(g, "r.value", "r.client", "r.op .. r.key")
}
