package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Only lines about cancelled calls are left out, and each part of a log has those of its level.
func TestLogWithoutCancelledCalls(t *testing.T) {
	warnings, warned := observer.New(zap.WarnLevel)
	errs, failed := observer.New(zap.ErrorLevel)
	lg := uncancelled(zap.New(zapcore.NewTee(warnings, errs)).With(zap.String("of", "a cluster")))
	for _, err := range []error{
		context.Canceled, fmt.Errorf("closing: %w", context.Canceled), status.Error(codes.Canceled, "the client is closing"),
		errors.New("broken"), status.Error(codes.DeadlineExceeded, "late"),
	} {
		lg.Info("tried", zap.Error(err))
		lg.Warn("tried", zap.Error(err))
		lg.Error("failed", zap.Error(err))
	}
	require.Equal(t, 4, warned.Len())
	require.Equal(t, 2, failed.Len())
	require.Equal(t, map[string]any{"of": "a cluster", "error": "broken"}, failed.All()[0].ContextMap())
}
