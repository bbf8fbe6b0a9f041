package tracing

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/status"
)

// Span is a part of a sampled request's way. It is safe for concurrent use; nil: the request
// isn't sampled.
type Span struct {
	t      *Tracer
	at     context.Context // of its children
	span   trace.Span
	answer atomic.Pointer[time.Time]
}

// Child begins a span below this one.
func (s *Span) Child(name string) *Span {
	if s == nil {
		return nil
	}
	at, span := s.t.spans.Start(s.at, name)
	return &Span{t: s.t, at: at, span: span}
}

// Part is a span below this one that is over.
func (s *Span) Part(name string, from, to time.Time, attrs ...attribute.KeyValue) {
	if s == nil {
		return
	}
	_, span := s.t.spans.Start(s.at, name, trace.WithTimestamp(from), trace.WithAttributes(attrs...))
	span.End(trace.WithTimestamp(to))
}

// Answering says that all is done since then but the answer.
func (s *Span) Answering(since time.Time) {
	if s != nil {
		s.answer.Store(&since)
	}
}

// Done ends a span that Child has begun.
func (s *Span) Done() {
	if s != nil {
		s.span.End()
	}
}

// End ends the span of a request, with the code of the request's error, if any: its text may have data of
// the client's.
func (s *Span) End(err error) {
	if s == nil {
		return
	}
	if since := s.answer.Load(); since != nil {
		s.Part("answer", *since, time.Now())
	}
	code := status.Code(err)
	s.span.SetAttributes(attribute.Int("rpc.grpc.status_code", int(code)))
	if err != nil {
		s.span.SetStatus(codes.Error, code.String())
	}
	s.span.End()
}

// Wire is the span as W3C's traceparent, for other servers.
func (s *Span) Wire() []byte {
	if s == nil {
		return nil
	}
	c := propagation.MapCarrier{}
	w3c.Inject(s.at, c)
	return []byte(c[header])
}
