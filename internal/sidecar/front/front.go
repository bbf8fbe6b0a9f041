// Package front is the side of a sidecar that local clients see, whatever is behind it: its ports, its
// pages, and a graceful shutdown.
//
// It must not know what is served.
package front

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/internal/serve"
)

// Options configure a Front.
type Options struct {
	GRPC       *grpc.Server // made with serve.Credentials
	Direct     serve.GRPC   // serves connections that carry nothing but gRPC, in place of GRPC, if not nil
	MaxStreams uint32
	Registry   *prometheus.Registry // of /metrics; New adds to it
	// Health tells whether all is well, Ready whether anything can be answered: for the pages of
	// these names.
	Health, Ready func(context.Context) error
	// Cached tells whether something is answered from memory, whatever the cluster does: for
	// /readyz?cached. nil: nothing.
	Cached func() bool
	Logger *zap.Logger
}

// A Front serves local clients.
type Front struct {
	o       Options
	clients *serve.Server
	meters  *serve.Server

	inFlight atomic.Int64
	draining atomic.Bool
	// streaming ends when streams without an end of their own have to.
	streaming  context.Context
	endStreams context.CancelFunc

	progress prometheus.Gauge
	checks   *prometheus.CounterVec
}

// New makes a front. It serves nothing yet.
func New(o Options) *Front {
	f := &Front{o: o,
		progress: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "stoa_sidecar_in_flight_requests", Help: "Calls of local clients in progress, without streams that have no end of their own.",
		}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stoa_sidecar_health_checks_total", Help: "Requests of /health and /readyz, by result.",
		}, []string{"page", "ok"}),
	}
	o.Registry.MustRegister(f.progress, f.checks)
	f.streaming, f.endStreams = context.WithCancel(context.Background())
	f.clients = serve.New(serve.Options{GRPC: o.GRPC, Direct: o.Direct, HTTP: f.Pages(), MaxStreams: o.MaxStreams, Logger: o.Logger})
	f.meters = serve.New(serve.Options{HTTP: f.Pages(), Logger: o.Logger})
	return f
}

// ErrDraining is the reason for which a sidecar that stops isn't ready.
var ErrDraining = errors.New("the sidecar is shutting down")

// Begin counts a call that ends by itself, until done.
func (f *Front) Begin() (done func()) {
	f.inFlight.Add(1)
	f.progress.Inc()
	return func() {
		f.inFlight.Add(-1)
		f.progress.Dec()
	}
}

// Streaming ends when streams without an end of their own have to.
func (f *Front) Streaming() context.Context { return f.streaming }

// Serve starts to accept connections on the ports of clients and those for metrics, and
// returns.
func (f *Front) Serve(clients, meters []*serve.Port) error {
	if err := f.meters.Serve(meters...); err != nil {
		return err
	}
	return f.clients.Serve(clients...)
}

// Err yields the first error that closed a port of clients without a call of Stop.
func (f *Front) Err() <-chan error { return f.clients.Err() }

const drainTick = 10 * time.Millisecond

// Stop is a graceful shutdown: no connection is accepted any more, and calls in progress may
// end until ctx does.
func (f *Front) Stop(ctx context.Context) {
	f.draining.Store(true)
	go func() {
		for f.inFlight.Load() > 0 && ctx.Err() == nil {
			time.Sleep(drainTick)
		}
		// The others would hold the server up. They are ended one by one, and not with their
		// connections: an answer may be on its way there.
		f.endStreams()
	}()
	f.clients.Stop(ctx)
	f.meters.Stop(ctx)
}
