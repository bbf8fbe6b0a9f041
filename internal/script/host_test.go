package script_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/script"
)

// One module is called by many goroutines at once, each with limits of its own:
// all see the same, and nothing of each other.
func TestCallsAtOnce(t *testing.T) {
	m := load(t, `
local shared = { 1, 2, 3, x = { y = 1 } }
local function add(t, n) for i, v in ipairs(shared) do t[i] = (t[i] or 0) + v * n end return t end
return { run = function(n)
  local t = {}
  for i = 1, 20 do add(t, n) end
  for k, v in pairs(shared) do t["k" .. tostring(k)] = type(v) end
  put("x", t[1])
  return table.concat(t, ",")
end }`)
	want := call(m, roomy, script.Int(3))
	require.Equal(t, `"60,120,180"`, want.value)
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Go(func() {
			for i := range 200 {
				if (g+i)%5 == 0 {
					call(m, script.Limits{Steps: int64(i), Bytes: int64(10 * i), Depth: i % 4}, script.Int(3))
				} else if got := call(m, roomy, script.Int(3)); got != want {
					t.Errorf("%v, want %v", got, want)
				}
			}
		})
	}
	wait.Wait()
}

// Whatever the limit is, a run uses at most that, and exactly the same up to
// where it ends; with what it needs it ends well, with one less it doesn't.
func TestLimitsAreExact(t *testing.T) {
	m := load(t, `return { run = function(n)
  local t = {}
  for i = 1, n do t[i] = ("x"):rep(i) .. i end
  local function depth(n) if n > 0 then return depth(n - 1) end return range(3) end
  depth(3)
  return #table.concat(t, ",")
end }`)
	need := call(m, roomy, script.Int(20))
	require.Empty(t, need.err.Reason)
	for steps := range need.usage.Steps + 2 {
		o := call(m, script.Limits{Steps: steps, Bytes: roomy.Bytes, Depth: 5}, script.Int(20))
		require.Equal(t, steps < need.usage.Steps, o.err.Limit, steps)
		require.Equal(t, min(steps, need.usage.Steps), o.usage.Steps)
		require.LessOrEqual(t, o.usage.Bytes, need.usage.Bytes)
	}
	for bytes := range need.usage.Bytes + 2 {
		o := call(m, script.Limits{Steps: roomy.Steps, Bytes: bytes, Depth: 5}, script.Int(20))
		require.Equal(t, bytes < need.usage.Bytes, o.err.Limit, bytes)
		require.LessOrEqual(t, o.usage.Bytes, bytes)
	}
	require.True(t, call(m, script.Limits{Steps: roomy.Steps, Bytes: roomy.Bytes, Depth: 4}, script.Int(20)).err.Limit)
}

func TestHostErrors(t *testing.T) {
	cause := errors.New("the disk is gone")
	functions := []script.Function{
		{Name: "fail", Do: func(*script.Call, []script.Value) (script.Value, error) {
			return script.Nil(), fmt.Errorf("get: %w", cause)
		}},
		{Name: "panics", Do: func(*script.Call, []script.Value) (script.Value, error) { panic("secret") }},
		{Name: "record", Do: func(c *script.Call, _ []script.Value) (script.Value, error) {
			require.Equal(t, "state", c.Host())
			return c.NewRecord(nil, script.Field{Name: "a", Value: script.Int(1)}, script.Field{Name: "none"}, script.Field{Name: "b", Value: script.Bool(true)})
		}},
	}
	p, err := script.Compile([]byte("return { function() fail() end, function()\n  panics() end, function(t) local r = record() r.a = t.j .. r.a return r end }"), functions, script.Bounds{})
	require.NoError(t, err)
	m, _, err := p.Load(roomy)
	require.NoError(t, err)
	list, _ := m.Export().AsTable()

	_, _, err = m.Call(list.Index(1), nil, roomy, nil)
	require.ErrorIs(t, err, cause)
	require.EqualError(t, err, "line 1:21: get: the disk is gone")

	_, _, err = m.Call(list.Index(2), nil, roomy, nil)
	e := (*script.Error)(nil)
	require.ErrorAs(t, err, &e)
	require.Equal(t, "secret", e.Panic)
	require.EqualError(t, err, "line 2:3: internal error in panics")

	var fields []script.Field
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		fields = append(fields, script.Field{Name: name, Value: script.String(name)})
	}
	v, u, err := m.Call(list.Index(3), []script.Value{script.Record(nil, fields...)}, roomy, "state")
	require.NoError(t, err)
	require.Equal(t, `{"a": "j1", "b": true}`, show(v))
	require.Positive(t, u.Bytes)

	_, _, err = m.Call(script.Int(1), nil, roomy, nil)
	require.EqualError(t, err, "not a function of this file")
	_, _, err = m.Call(list.Index(1), nil, script.Limits{Steps: -1, Bytes: -1, Depth: -1}, nil)
	require.Error(t, err)
}

// A function that a call has made holds that call's variables: it can't be
// called once that is over.
func TestFunctionsOfACall(t *testing.T) {
	m := load(t, "return function() local n = 0 return function() n = n + 1 return n end end")
	inner, _, err := m.Call(m.Export(), nil, roomy, nil)
	require.NoError(t, err)
	require.Equal(t, script.FunctionKind, inner.Kind())
	_, _, err = m.Call(inner, nil, roomy, nil)
	require.EqualError(t, err, "not a function of this file")
}

func TestValues(t *testing.T) {
	require.True(t, script.Nil().IsNil())
	for _, s := range []string{"", "a", "a\x00b"} {
		got, ok := script.Bytes([]byte(s)).AsString()
		require.True(t, ok)
		require.Equal(t, s, got)
	}
	_, ok := script.Int(int64(script.StringKind) << 56).AsString()
	require.False(t, ok)
	_, ok = script.Int(int64(script.TableKind) << 56).AsTable()
	require.False(t, ok)
	_, ok = script.String("x").AsInt()
	require.False(t, ok)
	_, ok = script.Nil().AsBool()
	require.False(t, ok)
	require.True(t, script.Int(0).Truthy())
	require.False(t, script.Bool(false).Truthy())
}

// Two strings of the host may or may not share their memory, depending on where
// it has them from. That must not be seen.
func TestSharedStrings(t *testing.T) {
	value := strings.Repeat("x", 10_000)
	shared := false
	functions := []script.Function{{Name: "get", Do: func(*script.Call, []script.Value) (script.Value, error) {
		if shared {
			return script.String(value), nil
		}
		return script.String(strings.Clone(value)), nil
	}}}
	p, err := script.Compile([]byte(`return function()
  local t = {}
  t[get()] = 1
  return { get() == get(), get() < get(), t[get()], get():find(get()) }
end`), functions, script.Bounds{})
	require.NoError(t, err)
	m, _, err := p.Load(roomy)
	require.NoError(t, err)
	v1, u1, err := m.Call(m.Export(), nil, roomy, nil)
	require.NoError(t, err)
	shared = true
	v2, u2, err := m.Call(m.Export(), nil, roomy, nil)
	require.NoError(t, err)
	require.Equal(t, show(v1), show(v2))
	require.Equal(t, u1, u2)
}

func TestHugeTablesOfTheHost(t *testing.T) {
	functions := []script.Function{{Name: "huge", Min: 1, Max: 1, Do: func(c *script.Call, args []script.Value) (script.Value, error) {
		n, _ := args[0].AsInt()
		table, err := c.NewTable(int(n), int(n))
		if err != nil {
			return script.Nil(), err
		}
		return table.Value(), nil
	}}}
	for n, want := range map[string]string{"9223372036854775807": "line 1:28: more than 16777216 bytes of memory", "-5": ""} {
		p, err := script.Compile([]byte("return function()   return huge("+n+") end"), functions, script.Bounds{})
		require.NoError(t, err)
		m, _, err := p.Load(roomy)
		require.NoError(t, err)
		_, _, err = m.Call(m.Export(), nil, roomy, nil)
		if want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, want)
		}
	}
}

// The reason tends to stand at the end of a long error.
func TestLongErrorsKeepTheirReason(t *testing.T) {
	p, err := script.Compile([]byte(`return function() error(("x"):rep(5000) .. ": the queue is closed") end`), host, script.Bounds{})
	require.NoError(t, err)
	m, _, err := p.Load(roomy)
	require.NoError(t, err)
	_, _, err = m.Call(m.Export(), nil, roomy, nil)
	require.ErrorContains(t, err, "line 1:19: xxxx")
	require.ErrorContains(t, err, ": the queue is closed")
	require.Less(t, len(err.Error()), 600)
}
