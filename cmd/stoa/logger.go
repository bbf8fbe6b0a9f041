package main

import (
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/logutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zapgrpc"
	"google.golang.org/grpc/grpclog"
	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/stoa-kv/stoa/internal/config"
)

// onlyPanicsHaveStacks: errors are for operators, to whom a stack trace is of
// no use.
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
	lg, err := outputLogger(c, o.Rotation)
	if err != nil {
		return nil, fmt.Errorf("--log-outputs %q: %w", o.Outputs, err)
	}
	redirectGRPC(lg)
	return lg, nil
}

// outputLogger writes to the outputs. The one that is a file is rotated if r isn't nil.
func outputLogger(c zap.Config, r *config.Rotation) (*zap.Logger, error) {
	var files []zapcore.WriteSyncer
	if r != nil {
		c.OutputPaths = slices.DeleteFunc(c.OutputPaths, func(out string) bool { return out == r.File })
		file, err := rotated(r)
		if err != nil {
			return nil, err
		}
		files = append(files, zapcore.AddSync(file))
	}
	c = logutil.MergeOutputPaths(c)
	plain, _, err := zap.Open(c.OutputPaths...)
	if err != nil {
		return nil, err
	}
	sink := zapcore.NewMultiWriteSyncer(append(files, plain)...)
	core := zapcore.NewCore(encoder(c), sink, c.Level)
	core = zapcore.NewSamplerWithOptions(core, time.Second, c.Sampling.Initial, c.Sampling.Thereafter)
	return zap.New(core, zap.ErrorOutput(sink), zap.AddCaller(), onlyPanicsHaveStacks), nil
}

// rotated opens a file that is rotated: a path that is no good is an error at the start.
func rotated(r *config.Rotation) (*lumberjack.Logger, error) {
	file := &lumberjack.Logger{Filename: r.File, MaxSize: r.MaxSize, MaxAge: r.MaxAge, MaxBackups: r.MaxBackups, LocalTime: r.LocalTime, Compress: r.Compress}
	_, err := file.Write(nil)
	return file, err
}

func encoder(c zap.Config) zapcore.Encoder {
	if c.Encoding == "console" {
		return zapcore.NewConsoleEncoder(c.EncoderConfig)
	}
	return zapcore.NewJSONEncoder(c.EncoderConfig)
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

// redirectGRPC makes the log lines of grpc-go and of the gateway's library ours: they would write to
// stderr in another form. They have only a global to set; connections that come and go, their
// main subject, are of interest when debugging only.
func redirectGRPC(lg *zap.Logger) {
	own := grpcLines{errors: lg.Named("grpc").Sugar()}
	if !lg.Core().Enabled(zapcore.DebugLevel) {
		lg = lg.WithOptions(zap.IncreaseLevel(zapcore.ErrorLevel))
	}
	own.Logger = zapgrpc.NewLogger(lg.Named("grpc"))
	grpclog.SetLoggerV2(own)
}

// grpcLines has the errors of these libraries as warnings: they are those of one request, which anybody
// can make who reaches the port.
type grpcLines struct {
	*zapgrpc.Logger
	errors *zap.SugaredLogger
}

// Error implements grpclog.LoggerV2.
func (l grpcLines) Error(args ...any) { l.errors.Warn(args...) }

// Errorln implements grpclog.LoggerV2.
func (l grpcLines) Errorln(args ...any) { l.errors.Warnln(args...) }

// Errorf implements grpclog.LoggerV2.
func (l grpcLines) Errorf(format string, args ...any) { l.errors.Warnf(format, args...) }

// defaultLogger is for what goes wrong before there is a logger.
func defaultLogger() *zap.Logger {
	lg, err := logutil.CreateDefaultZapLogger(zap.InfoLevel)
	if err != nil {
		return zap.NewExample()
	}
	return lg.WithOptions(onlyPanicsHaveStacks)
}
