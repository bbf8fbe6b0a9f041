package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/audit"
	"github.com/stoa-kv/stoa/internal/bootstrap"
	"github.com/stoa-kv/stoa/internal/metrics"
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

// auditedFile is where the test's own program writes an audit log, if it is there.
const auditedFile = "STOA_TEST_AUDITED"

// A server that can't go on has written what it was asked for until then.
func TestAuditLogOfAServerThatCantGoOn(t *testing.T) {
	const requests = 5_000
	if path := os.Getenv(auditedFile); path != "" {
		cfg, lg := settings(t, t.TempDir(), "--audit-log="+path), zap.NewNop()
		s := &server{cfg: cfg, lg: lg, metrics: metrics.New(), ports: &ports{cfg: cfg, lg: lg}}
		var err error
		s.ports.audit, err = openAudit(cfg, s.metrics.Registry, lg)
		require.NoError(t, err)
		n, err := s.nodeConfig(&bootstrap.Record{})
		require.NoError(t, err)
		for range requests {
			s.ports.audit.Add(&audit.Record{Method: "m", Code: "OK"})
		}
		n.Fatal(errors.New("for a test"))
	}
	path := filepath.Join(t.TempDir(), "audit.log")
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), auditedFile+"="+path)
	require.Error(t, cmd.Run())
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, requests, bytes.Count(b, []byte{'\n'}))
}
