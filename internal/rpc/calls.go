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
	"google.golang.org/grpc/tap"

	"github.com/stoa-kv/stoa/internal/memory"
)

// calls counts clients' requests, under the names that etcd's servers use.
type calls struct {
	started, received, sent, handled *prometheus.Desc
	handling                         *prometheus.HistogramVec // nil unless asked for
	unary, streams                   versions
	byMethod                         map[string]*versions
	memory                           *memory.Budget

	mu  sync.Mutex
	all []*call
}

func newCalls(r prometheus.Registerer, extensive bool, m *memory.Budget) *calls {
	labels := []string{"grpc_type", "grpc_service", "grpc_method"}
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append(labels[:3:3], more...), nil)
	}
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "etcd_server_client_requests_total", Help: "Requests by the API version that the client says it speaks.",
	}, []string{"type", "client_api_version"})
	c := &calls{
		byMethod: map[string]*versions{},
		memory:   m,
		started:  desc("grpc_server_started_total", "Total number of RPCs started on the server."),
		received: desc("grpc_server_msg_received_total", "Total number of RPC messages received on the server."),
		sent:     desc("grpc_server_msg_sent_total", "Total number of RPC messages sent by the server."),
		handled:  desc("grpc_server_handled_total", "Total number of RPCs completed on the server, regardless of success or failure.", "grpc_code"),
	}
	c.unary.of, c.streams.of = requests.MustCurryWith(prometheus.Labels{"type": "unary"}), requests.MustCurryWith(prometheus.Labels{"type": "stream"})
	if extensive {
		c.handling = prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "grpc_server_handling_seconds", Help: "How long RPCs took on the server.", Buckets: prometheus.DefBuckets,
		}, labels)
	}
	if r != nil {
		r.MustRegister(c, requests)
		if extensive {
			r.MustRegister(c.handling)
		}
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *calls) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.started, c.received, c.sent, c.handled} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *calls) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	all := c.all
	c.mu.Unlock()
	for _, m := range all {
		show := func(d *prometheus.Desc, of func(*counts) *atomic.Uint64, labels ...string) {
			var sum uint64
			for i := range m.counts {
				sum += of(&m.counts[i]).Load()
			}
			out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(sum), append(m.labels[:3:3], labels...)...)
		}
		// What ends is counted before what begins, so no method shows more of the former.
		for code := range codes.Unauthenticated + 1 {
			show(c.handled, func(n *counts) *atomic.Uint64 { return &n.byCode[code] }, code.String())
		}
		show(c.sent, func(n *counts) *atomic.Uint64 { return &n.sent })
		show(c.received, func(n *counts) *atomic.Uint64 { return &n.received })
		show(c.started, func(n *counts) *atomic.Uint64 { return &n.started })
	}
}

// stripes is how many calls of one method can be counted at once without writes to the same
// cache line: with one counter for all cores, counting took 4 % of a get on two.
const stripes = memory.Stripes

// counts are a part of the calls of one method, on cache lines of their own.
type counts struct {
	started, received, sent atomic.Uint64
	byCode                  [codes.Unauthenticated + 1]atomic.Uint64
	_                       [32]byte
}

// stripe numbers the parts in turn.
var stripe atomic.Uint32

func nextStripe() uint32 { return stripe.Add(1) % stripes }

// call is the counters of one method.
type call struct {
	name     string // as etcd logs it
	labels   []string
	voters   bool // learners don't serve it
	fenced   bool // fenced members serve it
	right    right
	counts   [stripes]counts
	handling prometheus.Observer // may be nil
}

func (c *calls) of(service, method, kind string) *call {
	m := &call{name: "/" + service + "/" + method, labels: []string{kind, service, method}}
	m.voters, m.fenced, m.right = forVoters(m.name), onFenced[m.name], rights[m.name]
	if c.handling != nil {
		m.handling = c.handling.WithLabelValues(m.labels...)
	}
	if c.byMethod[m.name] = &c.streams; kind == "unary" {
		c.byMethod[m.name] = &c.unary
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, m)
	return m
}

func (c *call) ended(n *counts, err error, took time.Duration) {
	code := codeOf(err)
	if int(code) >= len(n.byCode) {
		code = codes.Unknown
	}
	n.byCode[code].Add(1)
	if c.handling != nil {
		c.handling.Observe(took.Seconds())
	}
}

// counted counts a stream's messages.
type counted struct {
	grpc.ServerStream
	n *counts
}

func (s *counted) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		s.n.received.Add(1)
	}
	return err
}

func (s *counted) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	if err == nil {
		s.n.sent.Add(1)
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
	return ctx, c.refuse(call.FullMethodName)
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
