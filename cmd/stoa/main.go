// Stoa is the server.
//
// It contains only the wiring: read from top to bottom, start and serve list
// the parts in the order in which they start, and stop in the order in which
// they stop.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/experimental"

	"github.com/stoa-kv/stoa/api/stoa/v1/sessionwire"
	"github.com/stoa-kv/stoa/internal/bootstrap"
	"github.com/stoa-kv/stoa/internal/config"
	"github.com/stoa-kv/stoa/internal/memory"
	"github.com/stoa-kv/stoa/internal/metrics"
	"github.com/stoa-kv/stoa/internal/node"
	"github.com/stoa-kv/stoa/internal/snapshot"
	"github.com/stoa-kv/stoa/internal/token"
	"github.com/stoa-kv/stoa/internal/tracing"
	"github.com/stoa-kv/stoa/internal/version"
)

// Bounds of a graceful shutdown, in all and for requests in progress. etcd's
// operators expect a server to exit within a second and a half.
const (
	stopLimit  = 1400 * time.Millisecond
	drainLimit = 200 * time.Millisecond
)

// What gRPC encodes messages into, and its connections to peers read into. Its
// servers are told by an option.
func init() { experimental.SetDefaultBufferPool(sessionwire.Pool) }

func main() {
	if len(os.Args) > 1 && os.Args[1] == "sidecar" {
		os.Exit(sidecarMain(os.Args[2:], os.Environ()))
	}
	cfg, err := config.Parse(os.Args[1:], os.Environ())
	var usage *config.UsageError
	switch {
	case errors.Is(err, config.ErrHelp):
		fmt.Print(config.HelpText())
		return
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "%v\nRun 'stoa --help' for usage.\n", err)
		os.Exit(2)
	case err != nil:
		defaultLogger().Error("failed to verify flags", zap.Error(err))
		os.Exit(1)
	case cfg.ShowVersion:
		version.Print(os.Stdout, "stoa")
		return
	}
	lg, err := newLogger(cfg.Log)
	if err != nil {
		defaultLogger().Error("failed to open the log", zap.Error(err))
		os.Exit(1)
	}
	if err := run(cfg, lg); err != nil {
		lg.Error("stoa failed", zap.Error(err))
		_ = lg.Sync()
		os.Exit(1)
	}
	_ = lg.Sync()
}

// server is the parts of a running server.
type server struct {
	cfg      *config.Config
	lg       *zap.Logger
	ports    *ports
	registry *bootstrap.Registry
	metrics  *metrics.Metrics
	memory   *memory.Budget // nil: no limit
	tracer   *tracing.Tracer
	tokens   token.Kind
	node     *node.Node
	removed  chan struct{} // closed once this member was removed from its cluster
}

func run(cfg *config.Config, lg *zap.Logger) error {
	signals, forget := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer forget()
	report(cfg, lg)
	go tendHeap(signals)
	s, err := start(signals, cfg, lg)
	if err != nil {
		if signals.Err() != nil && errors.Is(err, context.Canceled) {
			lg.Info("stopped before this member was bootstrapped")
			return nil
		}
		return err
	}
	err = s.serve(signals)
	forget() // a second signal ends the process at once
	return errors.Join(err, s.stop())
}

// start starts the parts, except those that serve opens.
func start(ctx context.Context, cfg *config.Config, lg *zap.Logger) (*server, error) {
	s := &server{cfg: cfg, lg: lg, metrics: metrics.New(), memory: limitMemory(cfg, lg), removed: make(chan struct{})}
	if err := s.up(ctx); err != nil {
		s.giveUp()
		return nil, err
	}
	return s, nil
}

// up opens the ports before it touches the data: a second start of a running
// server fails at the port. Nor has one with a setting that can't be used begun a cluster, or converted etcd's data.
func (s *server) up(ctx context.Context) (err error) {
	if s.ports, err = openPorts(s.cfg, s.lg); err != nil {
		return err
	}
	if s.ports.audit, err = openAudit(s.cfg, s.metrics.Registry, s.lg); err != nil {
		return err
	}
	if s.tracer, err = newTracer(s.cfg.Tracing, s.lg); err != nil {
		return err
	}
	if s.tokens, err = token.Parse(s.cfg.AuthToken, time.Duration(s.cfg.AuthTokenTTL)*time.Second); err != nil {
		return err
	}
	if err = snapshot.TakeOver(ctx, s.cfg.DataDir, s.cfg.WALDir, s.cfg.Partitions, s.cfg.ConvertEtcdData, s.lg); err != nil {
		return err
	}
	if err = snapshot.Refuse(s.cfg.DataDir); err != nil {
		return err
	}
	if s.registry, err = bootstrap.Open(filepath.Join(s.cfg.DataDir, "member"), s.lg); err != nil {
		return err
	}
	// The other members are answered from now on: new ones need each other to begin.
	if err = s.ports.servePeers(s.registry.Introduce); err != nil {
		return err
	}
	rec, err := s.identify(ctx)
	if err != nil {
		return err
	}
	settings, err := s.nodeConfig(&rec)
	if err != nil {
		return err
	}
	if s.memory != nil {
		settings.ExtensionMemory, settings.MayWatch = s.memory.Limit(), s.memory.Watch
	}
	if s.node, err = node.Start(settings); err != nil {
		return fmt.Errorf("starting with the data in %s: %w", s.cfg.DataDir, err)
	}
	s.checkPeerURLs()
	observe(s.metrics, s.node)
	for _, f := range s.cfg.Features {
		s.metrics.Feature(f.Name, f.Stage, f.On)
	}
	if s.memory != nil {
		s.metrics.Memory(s.memory)
	}
	if err := s.ports.build(s.node, s.metrics, s.memory, s.tracer); err != nil {
		return err
	}
	if s.memory != nil {
		go s.weigh(ctx)
	}
	return nil
}

// giveUp closes the parts of a failed start.
func (s *server) giveUp() {
	if s.ports != nil {
		s.ports.close()
	}
	if s.registry != nil {
		_ = s.registry.Close()
	}
	closeTracer(s.tracer)
}

// serve accepts peers at once, and clients when there is a leader. It returns
// when ctx ends, a port fails, or this member was removed, which is no failure, as in
// etcd.
func (s *server) serve(ctx context.Context) error {
	s.ports.letPeersIn(s.node)
	if err := s.ports.serveMetrics(); err != nil {
		return err
	}
	select {
	case <-s.node.Ready():
	case <-ctx.Done():
		return nil
	case <-s.removed:
		return nil
	case err := <-s.ports.errs():
		return err
	}
	if err := s.ports.serveClients(); err != nil {
		return err
	}
	notifySystemd(s.lg, "READY=1")
	select {
	case <-ctx.Done():
		return nil
	case <-s.removed:
		return nil
	case err := <-s.ports.errs():
		return err
	}
}

// stop is the graceful shutdown: it lets clients finish, transfers leadership,
// flushes, and closes the ports of the peers last: the transfer needs them.
func (s *server) stop() error {
	began := time.Now()
	s.lg.Info("stopping", zap.String("name", s.cfg.Name), zap.String("data-dir", s.cfg.DataDir))
	notifySystemd(s.lg, "STOPPING=1")
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		s.ports.stopClients(drainLimit)
		err := s.node.Stop(ctx)
		s.ports.stopPeers()
		closeTracer(s.tracer)
		done <- errors.Join(err, s.registry.Close())
	}()
	select {
	case err := <-done:
		s.lg.Info("stopped", zap.Duration("took", time.Since(began)))
		return err
	case <-ctx.Done():
		// Nothing is lost by it: what was acknowledged is in the log.
		s.lg.Warn("stopped before everything was closed", zap.Duration("took", time.Since(began)))
		return nil
	}
}

// report logs the notices of the settings.
func report(cfg *config.Config, lg *zap.Logger) {
	lg.Info("starting stoa", zap.String("stoa-version", version.Stoa), zap.String("etcd-version", version.Etcd),
		zap.String("git-sha", version.Commit()), zap.Strings("args", os.Args), zap.String("name", cfg.Name),
		zap.String("data-dir", cfg.DataDir),
		zap.Duration("heartbeat-interval", cfg.HeartbeatInterval), zap.Duration("election-timeout", cfg.ElectionTimeout),
		zap.Uint64("snapshot-catchup-entries", cfg.SnapshotCatchUpEntries),
		zap.Int64("quota-backend-bytes", cfg.QuotaBackendBytes))
	for _, n := range cfg.Notices {
		log := lg.Info
		if n.Warn {
			log = lg.Warn
		}
		log(n.Text, zap.String(n.Setting, n.Value))
	}
}
