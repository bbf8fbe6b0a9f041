package main

import (
	"fmt"

	"go.etcd.io/etcd/client/pkg/v3/logutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zapgrpc"
	"google.golang.org/grpc/grpclog"

	"github.com/stoa-kv/stoa/internal/config"
)

// onlyPanicsHaveStacks: an error is for the operator, who can't do anything with a stack.
var onlyPanicsHaveStacks = zap.AddStacktrace(zapcore.DPanicLevel)

// newLogger logs in etcd's form, which tools and etcd's own tests read.
func newLogger(o config.Log) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(o.Level)
	if err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	c := logutil.DefaultZapLoggerConfig
	c.Level = zap.NewAtomicLevelAt(level)
	c.Encoding = o.Format
	c.OutputPaths = nil
	for _, out := range o.Outputs {
		switch out {
		case "systemd/journal":
			return journalLogger(c)
		case "default":
			out = "stderr"
		}
		c.OutputPaths = append(c.OutputPaths, out)
	}
	c.ErrorOutputPaths = c.OutputPaths
	lg, err := logutil.MergeOutputPaths(c).Build(onlyPanicsHaveStacks)
	if err != nil {
		return nil, fmt.Errorf("--log-outputs %q: %w", o.Outputs, err)
	}
	redirectGRPC(lg)
	return lg, nil
}

func journalLogger(c zap.Config) (*zap.Logger, error) {
	j, err := newJournal(journalSocket, c)
	if err != nil {
		return nil, fmt.Errorf("--log-outputs systemd/journal: %w", err)
	}
	lg := zap.New(j, zap.AddCaller())
	redirectGRPC(lg)
	return lg, nil
}

// redirectGRPC makes grpc-go's own log lines ours: it would write to stderr in
// another form. It has only a global to set; connections that come and go, its
// main subject, are of interest when debugging only.
func redirectGRPC(lg *zap.Logger) {
	if !lg.Core().Enabled(zapcore.DebugLevel) {
		lg = lg.WithOptions(zap.IncreaseLevel(zapcore.ErrorLevel))
	}
	grpclog.SetLoggerV2(zapgrpc.NewLogger(lg.Named("grpc")))
}

// defaultLogger is for what goes wrong before there is a logger.
func defaultLogger() *zap.Logger {
	lg, err := logutil.CreateDefaultZapLogger(zap.InfoLevel)
	if err != nil {
		return zap.NewExample()
	}
	return lg.WithOptions(onlyPanicsHaveStacks)
}
