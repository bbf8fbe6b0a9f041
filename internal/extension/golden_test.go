package extension

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/script"
)

// What the functions of the state give and take is pinned for each version, as in
// package script.
func TestVersionPinsEveryFunction(t *testing.T) {
	text, err := os.ReadFile(fmt.Sprintf("testdata/version-%d/functions", script.Version))
	require.NoError(t, err)
	for _, f := range host {
		require.Contains(t, string(text), f.Name+"(")
	}
}
