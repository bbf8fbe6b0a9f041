package engine

import (
	"context"
	"errors"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// uncancelled is a log without lines about calls that were cancelled: etcd's client has an error for each stream that it is opening when
// it is closed, if its user has to be authenticated for that.
func uncancelled(lg *zap.Logger) *zap.Logger {
	return lg.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return cancellations{c} }))
}

type cancellations struct{ zapcore.Core }

func (c cancellations) With(fields []zapcore.Field) zapcore.Core {
	return cancellations{c.Core.With(fields)}
}

func (c cancellations) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return to.AddCore(e, c)
	}
	return to
}

func (c cancellations) Write(e zapcore.Entry, fields []zapcore.Field) error {
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && (errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled) {
			return nil
		}
	}
	if inner := c.Core.Check(e, nil); inner != nil { // it may be several, with levels of their own, or a sample
		inner.Write(fields...)
	}
	return nil
}
