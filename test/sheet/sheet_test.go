package sheet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/plot"
)

func TestNumbers(t *testing.T) {
	got, err := Numbers("3,1,10", 1)
	require.NoError(t, err)
	require.Equal(t, []int{3, 1, 10}, got)
	for _, bad := range []string{"", "1,", "1 2", "0,1", "x"} {
		_, err := Numbers(bad, 1)
		require.ErrorContains(t, err, "is not a list of numbers", bad)
	}
	_, err = Numbers("0,1", 0)
	require.NoError(t, err)
}

func TestTable(t *testing.T) {
	var b strings.Builder
	Table(&b, [][]string{{"a", "b"}, {"1", "2"}})
	require.Equal(t, "| a | b |\n| --- | --- |\n| 1 | 2 |\n", b.String())
}

func TestRound(t *testing.T) {
	for in, out := range map[time.Duration]string{
		123456 * time.Microsecond: "123ms", 12345 * time.Microsecond: "12.35ms", 123456 * time.Nanosecond: "123µs",
	} {
		require.Equal(t, out, Round(in).String())
	}
}

func TestDrawAndImage(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, Draw(filepath.Join(dir, "img"), map[string]plot.Chart{"one.svg": {Title: "one"}}))
	text, err := os.ReadFile(filepath.Join(dir, "img", "one.svg"))
	require.NoError(t, err)
	require.Contains(t, string(text), "<svg")
	require.Equal(t, "img/one.svg", Image(Way(filepath.Join(dir, "report.md"), filepath.Join(dir, "img")), "one.svg"))
}
