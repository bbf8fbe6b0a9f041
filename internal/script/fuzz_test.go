//go:build !race

// One goroutine: there is nothing for the race detector, under which this takes ten times as long.

package script_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/script"
)

var fuzzLimits = script.Limits{Steps: 20_000, Bytes: 1 << 17, Depth: 20}

// FuzzCompile wants every source refused or accepted, the same way each time,
// with a place in the source, and never with a panic inside.
func FuzzCompile(f *testing.F) {
	for _, a := range attacks {
		if len(a.source) < 4<<10 {
			f.Add([]byte(a.source))
			f.Add([]byte(file(a.source)))
		}
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		_, err := script.Compile(source, host, script.Bounds{})
		_, again := script.Compile(source, host, script.Bounds{})
		require.Equal(t, fmt.Sprint(err), fmt.Sprint(again))
		if err == nil {
			return
		}
		e := (*script.Error)(nil)
		require.ErrorAs(t, err, &e)
		require.Nil(t, e.Panic, "%s", source)
		require.False(t, e.Limit)
		if e.Line != 0 {
			require.LessOrEqual(t, e.Line, strings.Count(string(source), "\n")+strings.Count(string(source), "\r")+1)
			require.GreaterOrEqual(t, e.Column, 1)
		}
	})
}

// FuzzRun runs a script in two modules that were compiled apart, and in one of
// them again after other calls: value, error and usage must be the same, and
// within the limits. The script is the raw bytes, or is grown from them.
func FuzzRun(f *testing.F) {
	for _, a := range attacks {
		if len(a.source) < 4<<10 {
			f.Add([]byte(file(a.source)), uint64(0))
		}
	}
	for seed := range uint64(50) {
		f.Add([]byte(nil), seed+1)
	}
	f.Fuzz(func(t *testing.T, raw []byte, seed uint64) {
		source := string(raw)
		if seed != 0 {
			g := &grower{r: rand.New(rand.NewPCG(seed, uint64(len(raw)))), raw: raw}
			source = g.file()
		}
		twice(t, source)
	})
}

func twice(t *testing.T, source string) {
	first, err := script.Compile([]byte(source), host, script.Bounds{})
	if err != nil {
		return
	}
	second, err := script.Compile([]byte(source), host, script.Bounds{})
	require.NoError(t, err)
	m1, u1, err1 := first.Load(fuzzLimits)
	m2, u2, err2 := second.Load(fuzzLimits)
	require.Equal(t, result("", u1, err1), result("", u2, err2), source)
	within(t, u1, err1, source)
	if err1 != nil {
		return
	}
	fn1, fn2 := handler(m1), handler(m2)
	one := observe(t, m1, fn1, fuzzLimits, source)
	profiled(t, m1, fn1, fuzzLimits, one, source)
	for _, l := range []script.Limits{{Steps: 100, Bytes: 1000, Depth: 3}, fuzzLimits, {Steps: 1000, Bytes: 1 << 12, Depth: 10}} {
		profiled(t, m2, fn2, l, observe(t, m2, fn2, l, source), source)
	}
	require.Equal(t, one, observe(t, m2, fn2, fuzzLimits, source), source)
	require.Equal(t, one, observe(t, m1, fn1, fuzzLimits, source), source)
}

func handler(m *script.Module) script.Value {
	if t, ok := m.Export().AsTable(); ok {
		return t.Field("run")
	}
	return m.Export()
}

func observe(t *testing.T, m *script.Module, fn script.Value, l script.Limits, source string) outcome {
	return observeIn(t, nil, m, fn, l, source)
}

// profiled wants a call with a profile to be like the one without.
func profiled(t *testing.T, m *script.Module, fn script.Value, l script.Limits, want outcome, source string) {
	var p script.Profile
	require.Equal(t, want, observeIn(t, &p, m, fn, l, source), source)
	require.Equal(t, want.usage.Steps, stepsOf(&p), source)
}

func observeIn(t *testing.T, p *script.Profile, m *script.Module, fn script.Value, l script.Limits, source string) outcome {
	state := map[string]string{"/ctr": "41"}
	v, u, err := m.Profiled(p, fn, []script.Value{script.Int(7), script.String("argument")}, l, state)
	require.LessOrEqual(t, u.Steps, l.Steps, source)
	require.LessOrEqual(t, u.Bytes, l.Bytes, source)
	within(t, u, err, source)
	text, left := "", 1000
	if !tooMuch(v, &left) {
		text = show(v)
	}
	return result(text+fmt.Sprint(len(state)), u, err)
}

// tooMuch keeps show from tables that contain themselves, or each other many
// times.
func tooMuch(v script.Value, left *int) bool {
	t, ok := v.AsTable()
	if *left--; !ok || *left < 0 {
		return *left < 0
	}
	for _, item := range t.All() {
		if tooMuch(item, left) {
			return true
		}
	}
	return false
}

// within wants errors that every replica would have.
func within(t *testing.T, u script.Usage, err error, source string) {
	require.GreaterOrEqual(t, u.Steps, int64(0))
	require.GreaterOrEqual(t, u.Bytes, int64(0))
	if err == nil {
		return
	}
	e := (*script.Error)(nil)
	require.True(t, errors.As(err, &e))
	require.NotContains(t, e.Reason, "0xc0", source)
	require.NotContains(t, e.Reason, "runtime error", source)
	if e.Panic != nil {
		require.Equal(t, "internal error in broken", e.Reason, "%v\n%s", e.Panic, source)
	}
}

// TestGrown runs some of what FuzzRun grows, and wants most of it to compile and
// much of it to run to its end: otherwise it would test nothing.
func TestGrown(t *testing.T) {
	const n = 600
	ended := map[string]int{}
	for seed := range uint64(n) {
		g := &grower{r: rand.New(rand.NewPCG(seed, 1))}
		source := g.file()
		p, err := script.Compile([]byte(source), host, script.Bounds{})
		if err != nil {
			ended["refused"]++
			continue
		}
		twice(t, source)
		m, _, err := p.Load(fuzzLimits)
		require.NoError(t, err, source)
		switch o := observe(t, m, handler(m), fuzzLimits, source); {
		case o.err.Limit:
			ended["limit"]++
		case o.err.Reason != "":
			ended["error"]++
		default:
			ended["value"]++
		}
	}
	t.Log(ended)
	require.Less(t, ended["refused"], n/4)
	require.Greater(t, ended["value"], n/5)
	require.Greater(t, ended["limit"], n/100)
}
