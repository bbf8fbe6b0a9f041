package extension

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What an earlier release has accepted is taken for the nearest that this one allows, limit
// by limit; what it names besides stays.
func TestStoredLimitsStayWithinBounds(t *testing.T) {
	want := Defaults
	want.Steps, want.EventSteps, want.Keys = ceilings.Steps, 2000, 7
	require.Equal(t, want, Current.Stored([]byte(`{"steps": 100000000, "event_steps": 60, "keys": 7, "other": 1}`)))
	require.Equal(t, Defaults, Current.Stored([]byte(`{}`)))
}

func TestEventStepsAllowARun(t *testing.T) {
	_, err := Current.Parse([]byte(`{"event_steps": 1999}`))
	require.ErrorContains(t, err, "event_steps is 1999, want 2000 to 500000")
	l, err := Current.Parse([]byte(`{"event_steps": 2000}`))
	require.NoError(t, err)
	require.EqualValues(t, 2000, l.EventSteps)
}

// docs/extensions.md has each limit with its default and its maximum.
func TestDocumentedLimits(t *testing.T) {
	text, err := os.ReadFile("../../docs/extensions.md")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(text), "\n## Limits\n\n")
	require.True(t, ok)
	table, _, _ = strings.Cut(table, "\n\n")
	units := strings.NewReplacer(",", "", " KiB", "*1024", " MiB", "*1048576")
	number := func(cell string) int64 {
		count, unit, scaled := strings.Cut(units.Replace(cell), "*")
		n, err := strconv.ParseInt(count, 10, 64)
		require.NoError(t, err, cell)
		if scaled {
			by, err := strconv.ParseInt(unit, 10, 64)
			require.NoError(t, err)
			n *= by
		}
		return n
	}
	documented := map[string][2]int64{}
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| `") {
			documented[strings.Trim(cells[0], "| `")] = [2]int64{number(cells[1]), number(cells[2])}
		}
	}
	limits, real := Defaults, map[string][2]int64{}
	for _, f := range limits.fields(&ceilings) {
		def, ok := f.at.(*int64)
		if !ok {
			n := int64(*f.at.(*int))
			def = &n
		}
		real[f.name] = [2]int64{*def, f.max}
	}
	require.Equal(t, real, documented)
}
