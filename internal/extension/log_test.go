package extension

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A call keeps so many lines of its log, cut, whatever it writes.
func TestLogIsBounded(t *testing.T) {
	e, err := Compile("x", []byte(`return { scope = { "/k/" }, operations = { { op = "read", key = "/k/a" } },
		read = function() for i = 1, 200 do log(("a"):rep(i * 10), "b", i) end end }`), 7, Defaults)
	require.NoError(t, err)
	out, err := e.Operation(&model{}, &Defaults, 9, &Request{Op: Read, Key: []byte("/k/a")}, nil)
	require.NoError(t, err)
	require.Len(t, out.Log, maxLogLines)
	require.Equal(t, "aaaaaaaaaa b 1", out.Log[0])
	require.Equal(t, strings.Repeat("a", maxLogLine), out.Log[maxLogLines-1])
}
