package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	logs "go.uber.org/zap/zaptest/observer"

	"github.com/stoa-kv/stoa/internal/metrics"
)

// logged keeps the log of each node of a cluster.
type logged []*logs.ObservedLogs

func (l *logged) keep(c *Config) {
	core, kept := logs.New(zapcore.InfoLevel)
	c.Logger, c.Metrics = zap.New(core), metrics.New()
	*l = append(*l, kept)
}

// line waits for the one line with the text.
func (l logged) line(t *testing.T, node int, text string) map[string]any {
	t.Helper()
	return l.lineOf(t, node, text, func(map[string]any) bool { return true })
}

// lineOf is line for those whose fields are as they should be.
func (l logged) lineOf(t *testing.T, node int, text string, is func(fields map[string]any) bool) map[string]any {
	t.Helper()
	all := func() *logs.ObservedLogs {
		return l[node].Filter(func(e logs.LoggedEntry) bool { return e.Message == text && is(e.ContextMap()) })
	}
	require.Eventually(t, func() bool { return all().Len() > 0 }, time.Minute, 10*time.Millisecond, text)
	require.Equal(t, 1, all().Len(), text)
	return all().All()[0].ContextMap()
}

func TestLinesThatDoNotFitInAreCounted(t *testing.T) {
	core, kept := logs.New(zapcore.InfoLevel)
	lg, l := zap.New(core), newLines()
	for range maxLines + 7 {
		l.add(func(lg *zap.Logger) { lg.Info("x") })
	}
	l.drain(lg)
	require.Equal(t, maxLines, kept.FilterMessage("x").Len())
	dropped := kept.FilterLevelExact(zap.WarnLevel).All()
	require.Len(t, dropped, 1)
	require.EqualValues(t, 7, dropped[0].ContextMap()["dropped-messages"])
}
