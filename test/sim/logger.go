package sim

import (
	"fmt"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newLogger prints a server's log among the events of a run that is looked at.
func newLogger(l *loop, server uint64) *zap.Logger {
	enc := zapcore.NewConsoleEncoder(zapcore.EncoderConfig{
		MessageKey: "msg", LevelKey: "level", EncodeLevel: zapcore.LowercaseLevelEncoder, ConsoleSeparator: " ",
	})
	return zap.New(zapcore.NewCore(enc, writer{l, server}, zapcore.DebugLevel))
}

type writer struct {
	l      *loop
	server uint64
}

func (w writer) Write(b []byte) (int, error) {
	_, err := fmt.Fprintf(w.l.out, "%10.3fms server %d: %s", float64(w.l.now)/1e6, w.server, b)
	return len(b), err
}

func (w writer) Sync() error { return nil }
