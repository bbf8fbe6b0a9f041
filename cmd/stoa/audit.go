package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/audit"
	"github.com/stoa-kv/stoa/internal/config"
)

// auditLimit bounds how long a server that stops waits for the audit log's disk, and fatalAuditLimit one that can't go
// on, whose other goroutines serve meanwhile.
const (
	auditLimit      = 300 * time.Millisecond
	fatalAuditLimit = 100 * time.Millisecond
)

// openAudit opens the audit log of the settings, nil if there is none. A path that is no good
// is an error at the start.
func openAudit(c *config.Config, m prometheus.Registerer, lg *zap.Logger) (*audit.Log, error) {
	if c.AuditLog == "" {
		return nil, nil
	}
	torn := endsWithinALine(c.AuditLog)
	file, err := auditFile(c)
	if err != nil {
		return nil, fmt.Errorf("--audit-log: %w", err)
	}
	l := audit.Open(file, audit.Options{Torn: torn, Failed: func(dropped uint64, err error) {
		lg.Warn("dropped lines of the audit log", zap.String("path", c.AuditLog), zap.Uint64("lines", dropped), zap.Error(err))
	}})
	for name, counter := range map[string]struct {
		help string
		get  func() uint64
	}{
		"stoa_audit_lines_total":         {"Lines that were written into the audit log.", l.Written},
		"stoa_audit_dropped_lines_total": {"Lines that are missing in the audit log, since its file was full, failed or was too slow.", l.Dropped},
	} {
		m.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: counter.help},
			func() float64 { return float64(counter.get()) }))
	}
	return l, nil
}

// endAudit writes what the audit log has to write, if there is one.
func (p *ports) endAudit(within time.Duration) {
	if p.audit != nil && !p.audit.Close(within) {
		p.lg.Warn("stopped before the audit log was written", zap.String("path", p.cfg.AuditLog))
	}
}

func auditFile(c *config.Config) (io.WriteCloser, error) {
	if c.AuditRotation != nil {
		return rotated(c.AuditRotation)
	}
	return os.OpenFile(c.AuditLog, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// endsWithinALine reports a file whose last line has no end. Pipes and terminals have none.
func endsWithinALine(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	last := make([]byte, 1)
	_, err = f.ReadAt(last, info.Size()-1)
	return err == nil && last[0] != '\n'
}
