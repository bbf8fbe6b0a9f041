package main

import (
	"context"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/config"
	"github.com/stoa-kv/stoa/internal/tracing"
)

// newTracer returns nil if requests aren't to be traced.
func newTracer(c config.Tracing, lg *zap.Logger) (*tracing.Tracer, error) {
	if !c.Enable {
		return nil, nil
	}
	lg.Info("distributed tracing enabled", zap.String("address", c.Address), zap.String("service-name", c.Service),
		zap.String("service-instance-id", c.Instance), zap.Int("sampling-rate", c.PerMillion))
	return tracing.New(tracing.Options{Address: c.Address, Service: c.Service, Instance: c.Instance, PerMillion: c.PerMillion, Logger: lg})
}

// closeTracer gives the last spans a moment: the collector may be away.
func closeTracer(t *tracing.Tracer) {
	ctx, cancel := context.WithTimeout(context.Background(), drainLimit)
	defer cancel()
	t.Close(ctx)
}
