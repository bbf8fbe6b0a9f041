package extension

import (
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
