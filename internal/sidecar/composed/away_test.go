package composed

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestFollow: the log says once that a cluster is away, and once that it is back, soon after.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		ctx, cancel := context.WithCancel(t.Context())
		var away atomic.Bool
		go follow(ctx, zap.New(core), func(context.Context) error {
			if away.Load() {
				return errors.New("connection refused")
			}
			return nil
		})
		said := func(after time.Duration, lines ...string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			var got []string
			for _, l := range logs.TakeAll() {
				got = append(got, l.Message)
			}
			require.Equal(t, lines, got)
		}
		said(10 * time.Minute)
		away.Store(true)
		said(lookPause, "a cluster of the composition doesn't answer")
		said(10 * time.Minute)
		away.Store(false)
		said(awayPause, "a cluster of the composition answers again")
		cancel()
	})
}
