package extension

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/placement"
)

// What is counted for registered extensions is at least what they keep in the heap, with
// the indexes of the registry and the rules of the placement map.
func TestMemoryIsCountedInFull(t *testing.T) {
	counter := `return { scope = { "/s%[1]d/" }, operations = { { op = "put", key = "/s%[1]d/n" } }, put = function(r) put(r.key, 1) end }`
	var patterns, scope []string
	for i := range 100 {
		patterns = append(patterns, fmt.Sprintf(`{ op = "put", prefix = "/s%%[1]d/%d/" }`, i))
		scope = append(scope, fmt.Sprintf(`"/s%%[1]d/%d/"`, i))
	}
	var events []string
	for i := range 100 {
		events = append(events, fmt.Sprintf(`{ event = "deleted", prefix = "/s%%[1]d/%d/" }`, i))
	}
	many := `return { scope = { ` + strings.Join(scope, ",") + ` }, operations = { ` + strings.Join(patterns, ",") + ` }, events = { ` +
		strings.Join(events, ",") + ` }, put = function(r) end, event = function(e) end }`
	for name, c := range map[string]struct {
		source string
		n      int
	}{
		"small":    {counter, 1000},
		"patterns": {many, 50},
		"values":   {`local s = ("x"):rep(1000000) ` + strings.Replace(counter, "put(r.key, 1)", "put(r.key, s:sub(1, 9))", 1), 10},
	} {
		t.Run(name, func(t *testing.T) {
			reg, now := New(Defaults, nil), placement.New(4)
			ruled := RuledBy(now)
			before := heap()
			for i := range c.n {
				e, err := Compile(fmt.Sprint("e", i), fmt.Appendf(nil, c.source, i), int64(i+2), Defaults)
				require.NoError(t, err)
				reg = reg.With(e)
				now, ruled = reg.Place(now, ruled)
			}
			real := heap() - before
			t.Logf("%d counted, %d in the heap, each", reg.memory/int64(c.n), real/int64(c.n))
			require.GreaterOrEqual(t, reg.memory, real)
			require.Less(t, reg.memory, 4*real)
			runtime.KeepAlive(now)
		})
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// What all extensions keep together is bounded, and so are limits by what is there.
func TestMemoryIsLimited(t *testing.T) {
	large := func(name string, order int64, bytes int) *Extension {
		source := fmt.Sprintf(`local s = ("x"):rep(%d) return { operations = { { op = "put", key = "/a" } }, put = function(r) return #s end }`, bytes)
		e, err := Compile(name, []byte(source), order, Defaults)
		require.NoError(t, err)
		return e
	}
	l := Defaults
	l.Memory, l.MemoryTotal = 1_100_000, 2_500_000
	reg := New(l, nil)
	for i, name := range []string{"a", "b"} {
		e := large(name, int64(i+2), 1_000_000)
		require.NoError(t, reg.Admit(e))
		reg = reg.With(e)
	}
	require.ErrorContains(t, reg.Admit(large("c", 4, 1_000_000)), "all extensions together would keep 3")
	require.ErrorContains(t, reg.Admit(large("c", 4, 1_200_000)), "it keeps 12")
	require.NoError(t, reg.Admit(large("b", 4, 1_000_000)), "instead of itself")
	require.NoError(t, reg.Without("a").Admit(large("c", 4, 1_000_000)))

	none := func(*Extension) bool { return false }
	require.NoError(t, reg.Hold(l, none))
	l.MemoryTotal = 2_000_000
	require.ErrorContains(t, reg.Hold(l, none), "memory_total is 2000000, and the registered extensions keep 20")
	require.NoError(t, reg.Hold(l, func(e *Extension) bool { return e.Name == "a" }))
	l.Memory = 900_000
	require.ErrorContains(t, reg.Hold(l, none), `extension "a": it keeps`)
}
