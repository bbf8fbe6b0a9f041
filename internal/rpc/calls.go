package rpc

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// calls counts clients' requests, under the names that etcd's servers use.
type calls struct {
	started, received, sent, handled *prometheus.CounterVec
	handling                         *prometheus.HistogramVec // nil unless asked for
	unary, streams                   versions
	byMethod                         map[string]*versions
}

func newCalls(r prometheus.Registerer, extensive bool) *calls {
	labels := []string{"grpc_type", "grpc_service", "grpc_method"}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		if r != nil {
			r.MustRegister(v)
		}
		return v
	}
	c := &calls{
		byMethod: map[string]*versions{},
		started:  counter("grpc_server_started_total", "Total number of RPCs started on the server.", labels...),
		received: counter("grpc_server_msg_received_total", "Total number of RPC messages received on the server.", labels...),
		sent:     counter("grpc_server_msg_sent_total", "Total number of RPC messages sent by the server.", labels...),
		handled: counter("grpc_server_handled_total", "Total number of RPCs completed on the server, regardless of success or failure.",
			append(labels[:3:3], "grpc_code")...),
	}
	versions := counter("etcd_server_client_requests_total", "Requests by the API version that the client says it speaks.", "type", "client_api_version")
	c.unary.of, c.streams.of = versions.MustCurryWith(prometheus.Labels{"type": "unary"}), versions.MustCurryWith(prometheus.Labels{"type": "stream"})
	if extensive {
		c.handling = prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "grpc_server_handling_seconds", Help: "How long RPCs took on the server.", Buckets: prometheus.DefBuckets,
		}, labels)
		if r != nil {
			r.MustRegister(c.handling)
		}
	}
	return c
}

// call is the counters of one method, looked up once.
type call struct {
	name                    string // as etcd logs it
	started, received, sent prometheus.Counter
	byCode                  [codes.Unauthenticated + 1]prometheus.Counter
	handling                prometheus.Observer // may be nil
}

func (c *calls) of(service, method, kind string) *call {
	m := &call{
		name:     "/" + service + "/" + method,
		started:  c.started.WithLabelValues(kind, service, method),
		received: c.received.WithLabelValues(kind, service, method), sent: c.sent.WithLabelValues(kind, service, method),
	}
	for code := range m.byCode {
		m.byCode[code] = c.handled.WithLabelValues(kind, service, method, codes.Code(code).String())
	}
	if c.handling != nil {
		m.handling = c.handling.WithLabelValues(kind, service, method)
	}
	if c.byMethod[m.name] = &c.streams; kind == "unary" {
		c.byMethod[m.name] = &c.unary
	}
	return m
}

func (c *call) ended(err error, took time.Duration) {
	code := codes.OK
	if err != nil {
		if code = status.Code(err); code == codes.Unknown {
			code = status.FromContextError(err).Code()
		}
	}
	if int(code) >= len(c.byCode) {
		code = codes.Unknown
	}
	c.byCode[code].Inc()
	if c.handling != nil {
		c.handling.Observe(took.Seconds())
	}
}

// counted counts a stream's messages.
type counted struct {
	grpc.ServerStream
	c *call
}

func (s *counted) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		s.c.received.Inc()
	}
	return err
}

func (s *counted) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	if err == nil {
		s.c.sent.Inc()
	}
	return err
}

// maxVersions bounds how many API versions are told apart: clients choose the text.
const maxVersions = 50

// versions counts requests by the API version that their client claims.
type versions struct {
	of    *prometheus.CounterVec
	mu    sync.Mutex
	known atomic.Pointer[map[string]prometheus.Counter] // replaced as a whole
}

// arrived is a tap.ServerInHandle: there a header that is missing costs one look into a
// map, where metadata.ValueFromIncomingContext compares it with all that are there. Calls
// that come by way of net/http, of clients that offer HTTP/1 as well, don't count.
func (c *calls) arrived(ctx context.Context, call *tap.Info) (context.Context, error) {
	if v := c.byMethod[call.FullMethodName]; v != nil {
		v.count(call.Header[rpctypes.MetadataClientAPIVersionKey])
	}
	return ctx, nil
}

func (v *versions) count(claimed []string) {
	version := "unknown"
	if len(claimed) > 0 {
		version = claimed[0]
	}
	if known := v.known.Load(); known != nil {
		if c := (*known)[version]; c != nil {
			c.Inc()
			return
		}
	}
	v.learn(version).Inc()
}

func (v *versions) learn(version string) prometheus.Counter {
	v.mu.Lock()
	defer v.mu.Unlock()
	known := map[string]prometheus.Counter{}
	if k := v.known.Load(); k != nil {
		known = maps.Clone(*k)
	}
	if len(known) >= maxVersions || !utf8.ValidString(version) {
		version = "unknown"
	}
	if known[version] == nil {
		known[version] = v.of.WithLabelValues(version)
		v.known.Store(&known)
	}
	return known[version]
}
