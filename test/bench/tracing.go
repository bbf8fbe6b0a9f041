package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"

	otlp "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

const tracingFlag = "--enable-distributed-tracing"

// collector receives spans, and counts them.
type collector struct {
	otlp.UnimplementedTraceServiceServer
	spans atomic.Int64
}

func (c *collector) Export(_ context.Context, r *otlp.ExportTraceServiceRequest) (*otlp.ExportTraceServiceResponse, error) {
	for _, of := range r.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			c.spans.Add(int64(len(scope.GetSpans())))
		}
	}
	return &otlp.ExportTraceServiceResponse{}, nil
}

// measureTracing measures etcd's API with tracing at etcd's default rate, at which only requests are traced whose clients
// ask for it, and at a rate of one in a hundred, beside stoa without.
func measureTracing(p *plan) (section, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return section{}, fmt.Errorf("listening for spans: %w", err)
	}
	var spans collector
	server := grpc.NewServer()
	otlp.RegisterTraceServiceServer(server, &spans)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	own := *p
	to := "--distributed-tracing-address=" + listener.Addr().String()
	own.subjects = []subject{
		{name: "stoa", bin: p.stoa},
		{name: "stoa, tracing", bin: p.stoa, args: []string{tracingFlag, to}},
		{name: "stoa, tracing 1 %", bin: p.stoa, args: []string{tracingFlag, to, "--distributed-tracing-sampling-rate=10000"}},
	}
	own.ops, own.clients = []string{"put", "get"}, []int{unaryClients}
	rep := &report{plan: &own, only: true, goals: func(c cell, own, base []sample) []verdict {
		return []verdict{atMost("tracing of no request, "+c.name()+": CPU per operation", compare(own, base, byCPU), 1.03)}
	}}
	if err := runNodes(&own, slices.Max(p.nodes), rep); err != nil {
		return section{}, err
	}
	if spans.spans.Load() == 0 {
		return section{}, errors.New("no span has arrived")
	}
	s := rep.section()
	s.text += fmt.Sprintf(" Tracing at the default rate, 0: no client of this load sends a span. At 1 %%, %d spans have arrived.", spans.spans.Load())
	return s, nil
}
