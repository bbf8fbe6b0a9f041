package script_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/script"
)

// shapes nest f() as deep as the verifier lets them, n is how often.
var shapes = []struct {
	name string
	make func(n int) string
}{
	{"minus", func(n int) string { return "return " + strings.Repeat("- ", n) + "f(d + 1)" }},
	{"not", func(n int) string { return "return " + strings.Repeat("not ", n) + "f(d + 1)" }},
	{"plus", func(n int) string {
		return "return " + strings.Repeat("1 + (", n) + "f(d + 1)" + strings.Repeat(")", n)
	}},
	{"times", func(n int) string {
		return "return " + strings.Repeat("1 * (", n) + "f(d + 1)" + strings.Repeat(")", n)
	}},
	{"less", func(n int) string {
		return "return " + strings.Repeat("1 == (", n) + "f(d + 1)" + strings.Repeat(")", n)
	}},
	{"and", func(n int) string {
		return "return " + strings.Repeat("1 and (", n) + "f(d + 1)" + strings.Repeat(")", n)
	}},
	{"condition", func(n int) string {
		return "if " + strings.Repeat("1 and (", n) + "f(d + 1)" + strings.Repeat(")", n) + " then end"
	}},
	{"concat", func(n int) string {
		return "return " + strings.Repeat("(", n) + "f(d + 1)" + strings.Repeat(".. 1)", n)
	}},
	{"table", func(n int) string {
		return "return " + strings.Repeat("{", n) + "f(d + 1)" + strings.Repeat("}", n)
	}},
	{"index", func(n int) string {
		return "local t = { 1 } return " + strings.Repeat("t[", n) + "f(d + 1)" + strings.Repeat("]", n)
	}},
	{"native", func(n int) string {
		return "return " + strings.Repeat("math.abs(", n) + "f(d + 1)" + strings.Repeat(")", n)
	}},
	{"call", func(n int) string {
		return "local function id(x) return x end return " + strings.Repeat("id(", n) + "f(d + 1)" + strings.Repeat(")", n)
	}},
	{"do", func(n int) string { return strings.Repeat("do ", n) + "f(d + 1)" + strings.Repeat(" end", n) }},
	{"if", func(n int) string { return strings.Repeat("if 1 then ", n) + "f(d + 1)" + strings.Repeat(" end", n) }},
	{"if with else", func(n int) string {
		return strings.Repeat("if 1 then elseif 1 then else end if nil then elseif 1 then ", n) + "f(d + 1)" + strings.Repeat(" end", n)
	}},
	{"while", func(n int) string {
		return strings.Repeat("while 1 do ", n) + "f(d + 1)" + strings.Repeat(" break end", n)
	}},
	{"repeat", func(n int) string {
		return strings.Repeat("repeat ", n) + "f(d + 1)" + strings.Repeat(" until 1", n)
	}},
	{"for", func(n int) string {
		return strings.Repeat("for i = 1, 1 do ", n) + "f(d + 1)" + strings.Repeat(" end", n)
	}},
	{"pairs", func(n int) string {
		return "local t = { 1 } " + strings.Repeat("for k, v in pairs(t) do ", n) + "f(d + 1)" + strings.Repeat(" end", n)
	}},
	{"ipairs", func(n int) string {
		return "local t = { 1 } " + strings.Repeat("for k, v in ipairs(t) do ", n) + "f(d + 1)" + strings.Repeat(" end", n)
	}},
	{"sort", func(n int) string {
		return strings.Repeat("for i = 1, 1 do ", n) + "table.sort({ 2, 1 }, function(a, b) return f(d + 1) end)" + strings.Repeat(" end", n)
	}},
	{"function", func(n int) string {
		return "return " + strings.Repeat("(function() return ", n) + "f(d + 1)" + strings.Repeat(" end)()", n)
	}},
}

// TestStack nests all that can nest as deep as can be, and calls it as deep as
// can be, and measures the Go stack at the bottom: far below the gigabyte at
// which Go ends the process.
func TestStack(t *testing.T) {
	const most = int64(256 << 20) // the race detector doubles it
	for _, shape := range shapes {
		t.Run(shape.name, func(t *testing.T) {
			bounds := script.Bounds{Nesting: script.MaxNesting, Source: 1 << 20}
			var p *script.Program
			var depth int
			var deepest uint64
			functions := []script.Function{{Name: "bottom", Do: func(*script.Call, []script.Value) (script.Value, error) {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				deepest = m.StackInuse
				return script.Nil(), nil
			}}}
			for n := script.MaxNesting; ; n-- {
				require.Positive(t, n)
				var err error
				p, err = script.Compile([]byte("local f f = function(d) if d == 990 then bottom() end "+shape.make(n)+" end return f"), functions, bounds)
				if err == nil {
					depth = n
					break
				}
			}
			m, _, err := p.Load(roomy)
			require.NoError(t, err)
			var before runtime.MemStats
			runtime.ReadMemStats(&before)
			done := make(chan error)
			go func() { // whose stack is new
				first := script.Int(1)
				switch shape.name { // where each f takes more calls than its own
				case "sort":
					first = script.Int(990 - 400)
				case "function":
					first = script.Int(990 - 900/int64(depth+1))
				}
				_, _, err := m.Call(m.Export(), []script.Value{first}, script.Limits{Steps: 1 << 40, Bytes: 1 << 40, Depth: script.MaxDepth}, nil)
				done <- err
			}()
			err = <-done
			require.Error(t, err, "it goes on until the limit of depth")
			require.NotZero(t, deepest, "%v", err)
			// Less than before is possible: the stacks of earlier shapes are freed.
			used := int64(deepest) - int64(before.StackInuse)
			t.Logf("nested %d: %d KiB of stack", depth, used>>10)
			require.Less(t, used, most)
		})
	}
}
