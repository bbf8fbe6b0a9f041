package script_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	lua "github.com/yuin/gopher-lua"

	"github.com/stoa-kv/stoa/internal/script"
)

var plenty = script.Limits{Steps: 1 << 40, Bytes: 1 << 40, Depth: 100}

// BenchmarkHandler is the call of a counter: two calls of the host and an
// addition.
func BenchmarkHandler(b *testing.B) {
	current := script.String("41")
	counter := []script.Function{
		{Name: "get", Min: 1, Max: 1, Do: func(c *script.Call, args []script.Value) (script.Value, error) {
			return current, c.Charge(1, 0)
		}},
		{Name: "put", Min: 2, Max: 3, Do: func(c *script.Call, args []script.Value) (script.Value, error) {
			return script.Nil(), c.Charge(1, 8)
		}},
	}
	p, err := script.Compile([]byte(`return { read = function(request)
		local n = (tonumber(get("/ctr")) or 0) + 1
		put("/ctr", n)
		return n
	end }`), counter, script.Bounds{})
	require.NoError(b, err)
	m, _, err := p.Load(roomy)
	require.NoError(b, err)
	t, _ := m.Export().AsTable()
	read := t.Field("read")
	args := []script.Value{script.String("/ctr-increment")}
	b.ReportAllocs()
	for b.Loop() {
		v, _, err := m.Call(read, args, roomy, nil)
		if n, _ := v.AsInt(); n != 42 || err != nil {
			b.Fatal(v, err)
		}
	}
}

const turns = 10_000

// loops are run by both: ours and gopher-lua's VM.
var loops = []struct{ name, body string }{
	{"sum", `local s = 0 for i = 1, 10000 do s = s + i end return s`},
	{"while", `local i = 0 while i < 10000 do i = i + 1 end return i`},
	{"branches", `local n = 0 for i = 1, 10000 do if i % 3 == 0 and i % 5 ~= 0 then n = n + i else n = n - 1 end end return n`},
	{"calls", `local function add(a, b) return a + b end local n = 0 for i = 1, 10000 do n = add(n, i) end return n`},
	{"tables", `local t = {} for i = 1, 10000 do t[i] = i end local n = 0 for i = 1, 10000 do n = n + t[i] end return n`},
	{"fields", `local t = { count = 0, step = 2 } for i = 1, 10000 do t.count = t.count + t.step end return t.count`},
}

func BenchmarkLoop(b *testing.B) {
	for _, l := range loops {
		b.Run(l.name+"/script", func(b *testing.B) {
			m := load(b, "return function() "+l.body+" end")
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := m.Call(m.Export(), nil, plenty, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/turns, "ns/turn")
		})
		b.Run(l.name+"/gopher-lua", func(b *testing.B) {
			s := lua.NewState()
			defer s.Close()
			s.SetContext(&counting{Context: context.Background(), left: 1 << 60})
			require.NoError(b, s.DoString("return function() "+l.body+" end"))
			fn := s.Get(-1)
			b.ReportAllocs()
			for b.Loop() {
				if err := s.CallByParam(lua.P{Fn: fn, NRet: 1, Protect: true}); err != nil {
					b.Fatal(err)
				}
				s.Pop(1)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/turns, "ns/turn")
		})
	}
}

// counting is the context that makes gopher-lua count: its VM asks for Done
// before each instruction.
type counting struct {
	context.Context
	left int64
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (c *counting) Done() <-chan struct{} {
	if c.left--; c.left < 0 {
		return closed
	}
	return nil
}

func (c *counting) Err() error                  { return context.DeadlineExceeded }
func (c *counting) Deadline() (time.Time, bool) { return time.Time{}, false }

func BenchmarkCompile(b *testing.B) {
	source := []byte(`return { read = function(request)
		local n = (tonumber(get("/ctr")) or 0) + 1
		put("/ctr", n)
		return n
	end }`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := script.Compile(source, host, script.Bounds{}); err != nil {
			b.Fatal(err)
		}
	}
}
