package clock_test

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

// A server's clock is set while it runs, which is seen in what it dates, and in nothing else of the machine.
func TestSet(t *testing.T) {
	bin, err := process.WithClock()
	require.NoError(t, err)
	c := process.StartT(t, process.Spec{Binary: bin, Nodes: 2})
	one, other := c.Servers[0], c.Servers[1]
	shows(t, one, 0)
	for _, ahead := range []time.Duration{5 * time.Hour, -7 * time.Hour, -50 * 365 * 24 * time.Hour, 3 * time.Hour} {
		require.NoError(t, one.SetClock(ahead))
		shows(t, one, ahead)
		shows(t, other, 0)
	}
	_, _, err = one.Stop()
	require.NoError(t, err)
	logged(t, one, 3*time.Hour)
	require.NoError(t, c.Restart(t.Context(), one))
	shows(t, one, 3*time.Hour)
	require.NoError(t, one.RunClock(-100, 100*time.Millisecond))
	shows(t, one, 3*time.Hour-10*time.Second)
}

// shows compares the date of an answer with the machine's clock: it is cut to seconds.
func shows(t *testing.T, s *process.Server, ahead time.Duration) {
	t.Helper()
	asked := time.Now()
	resp, err := http.Get(s.ClientURL + "/version")
	require.NoError(t, err)
	resp.Body.Close()
	date, err := http.ParseTime(resp.Header.Get("Date"))
	require.NoError(t, err)
	between(t, date, asked.Add(ahead-time.Second), time.Now().Add(ahead))
}

// logged does so with the last line of a server's log that has just been written.
func logged(t *testing.T, s *process.Server, ahead time.Duration) {
	t.Helper()
	text, err := os.ReadFile(s.LogFile)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var line struct{ TS time.Time }
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &line), lines[len(lines)-1])
	between(t, line.TS, time.Now().Add(ahead-time.Minute), time.Now().Add(ahead))
}

func between(t *testing.T, at, from, to time.Time) {
	t.Helper()
	require.False(t, at.Before(from) || at.After(to), "%v is not from %v to %v", at, from, to)
}
