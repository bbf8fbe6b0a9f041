package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/audit"
)

// The first line of a server's is its own, also if the one before has ended while it wrote a line.
func TestAuditLogThatEndsWithinALine(t *testing.T) {
	for name, flags := range map[string][]string{"plain": nil, "rotated": {"--enable-log-rotation"}} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			require.NoError(t, os.WriteFile(path, []byte(`{"time":"2026-11-29T20:40:00Z","user":"ro`), 0o600))
			cfg := settings(t, t.TempDir(), append(flags, "--audit-log="+path)...)
			addr, down := up(t, cfg)
			_, err := client(t, addr).Put(t.Context(), "k", "v")
			require.NoError(t, err)
			down()
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			lines := bytes.Split(bytes.TrimSpace(b), []byte{'\n'})
			require.Greater(t, len(lines), 1, "%s", b)
			for _, line := range lines[1:] {
				require.NoError(t, json.Unmarshal(line, new(audit.Record)), "%s", line)
			}
		})
	}
}
