package backend

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// A file that may become large by its quota is mapped as large from the beginning, so that no flush waits for a slow reader
// in order to map more.
func TestAddressSpaceForTheQuota(t *testing.T) {
	for _, tc := range []struct{ quota, least int64 }{
		{0, 10 << 30}, {2 << 30, 10 << 30}, {20 << 30, 20 << 30}, {math.MaxInt64, 100 << 30},
	} {
		path := filepath.Join(t.TempDir(), "db")
		f, err := openFile(path, Options{Quota: tc.quota, Logger: zap.NewNop()})
		require.NoError(t, err)
		require.GreaterOrEqual(t, mapped(t, path), tc.least)
		require.NoError(t, f.defragment())
		require.GreaterOrEqual(t, mapped(t, path), tc.least)
		require.NoError(t, f.close())
	}
}

// mapped is the size of the largest mapping of a file.
func mapped(t *testing.T, path string) (size int64) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skip(err) // not Linux
	}
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		if strings.HasSuffix(strings.TrimSpace(line), path) {
			_, err := fmt.Sscanf(line, "%x-%x", &from, &to)
			require.NoError(t, err)
			size = max(size, to-from)
		}
	}
	return size
}
