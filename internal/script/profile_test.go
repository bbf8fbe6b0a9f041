package script_test

import (
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/script"
)

const profiledSource = `local function double(n)
  return n + n
end
return { run = function(n)
  local sum = 0
  for i = 1, n do
    sum = sum + double(i)
  end
  if n > 100 then
    put("/sum", sum)
  end
  return sum
end }`

func TestProfileByLine(t *testing.T) {
	m := load(t, profiledSource)
	table, _ := m.Export().AsTable()
	run := table.Field("run")
	var p script.Profile
	used := int64(0)
	for _, n := range []int64{1, 10, 200} {
		_, u, err := m.Profiled(&p, run, []script.Value{script.Int(n)}, roomy, map[string]string{})
		require.NoError(t, err)
		used += u.Steps
	}
	calls, lines := p.Usage()
	require.EqualValues(t, 3, calls)
	require.Equal(t, used, stepsOf(&p))
	of := map[int]script.LineUsage{}
	for _, l := range lines {
		of[l.Line] = l
	}
	require.EqualValues(t, 3, of[2].Calls)
	require.Equal(t, int64(211*4), of[2].Steps, "a statement of four nodes, 211 times")
	require.EqualValues(t, 1, of[10].Calls, "a branch that one call has taken")
	require.NotContains(t, of, 3)
	require.NotContains(t, of, 1, "the file has been run before")
}

// A call that is stopped by the limit is counted up to there.
func TestProfileOfACallThatExceedsTheLimit(t *testing.T) {
	m := load(t, profiledSource)
	table, _ := m.Export().AsTable()
	for steps := range int64(200) {
		var p script.Profile
		_, u, err := m.Profiled(&p, table.Field("run"), []script.Value{script.Int(1000)}, script.Limits{Steps: steps, Bytes: 1 << 20, Depth: 5}, nil)
		require.ErrorContains(t, err, "steps")
		require.Equal(t, steps, u.Steps)
		require.Equal(t, steps, stepsOf(&p))
	}
}

// The largest charge that a host function can ask for is more than any limit, with a
// profile too.
func TestProfileOfAHugeCharge(t *testing.T) {
	functions := []script.Function{{Name: "huge", Do: func(c *script.Call, _ []script.Value) (script.Value, error) {
		return script.Nil(), c.Charge(math.MaxInt64, 0)
	}}}
	p, err := script.Compile([]byte(`return function() huge() end`), functions, script.Bounds{})
	require.NoError(t, err)
	m, _, err := p.Load(roomy)
	require.NoError(t, err)
	for _, profile := range []*script.Profile{nil, {}} {
		_, u, err := m.Profiled(profile, m.Export(), nil, roomy, nil)
		require.ErrorContains(t, err, "more than 1048576 steps")
		require.Equal(t, roomy.Steps, u.Steps)
	}
}

func TestProfileOfCallsAtOnce(t *testing.T) {
	m := load(t, profiledSource)
	table, _ := m.Export().AsTable()
	var p script.Profile
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 100 {
				if _, _, err := m.Profiled(&p, table.Field("run"), []script.Value{script.Int(5)}, roomy, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	calls, _ := p.Usage()
	require.EqualValues(t, 800, calls)
	require.Zero(t, stepsOf(&p)%800)
}
