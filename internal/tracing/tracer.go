package tracing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/incoming"
)

// Options say where spans go, and of which requests.
type Options struct {
	Address  string // host:port of an OTLP receiver that speaks gRPC without TLS
	Service  string // the resource's service.name
	Instance string // its service.instance.id; "": none
	// PerMillion is how many of a million requests are sampled, of those that come without a
	// span of their client's. The client decides for the others.
	PerMillion int
	Logger     *zap.Logger
}

// Tracer makes spans. It is safe for concurrent use; nil: none are made.
type Tracer struct {
	perMillion uint32
	spans      trace.Tracer
	provider   *sdk.TracerProvider
}

// New returns a Tracer. It doesn't wait for the receiver.
func New(o Options) (*Tracer, error) {
	out, err := otlptracegrpc.New(context.Background(), otlptracegrpc.WithInsecure(), otlptracegrpc.WithEndpoint(o.Address))
	if err != nil {
		return nil, fmt.Errorf("exporting spans to %s: %w", o.Address, err)
	}
	return newTracer(o, &exporter{SpanExporter: out, to: o.Address, lg: o.Logger}), nil
}

func newTracer(o Options, to sdk.SpanExporter) *Tracer {
	attrs := []attribute.KeyValue{attribute.String("service.name", o.Service)}
	if o.Instance != "" {
		attrs = append(attrs, attribute.String("service.instance.id", o.Instance))
	}
	p := sdk.NewTracerProvider(
		sdk.WithBatcher(to),
		sdk.WithResource(resource.NewSchemaless(attrs...)),
		sdk.WithSampler(sdk.AlwaysSample()), // what isn't to be sampled doesn't get here
	)
	return &Tracer{perMillion: uint32(o.PerMillion), spans: p.Tracer("github.com/stoa-kv/stoa"), provider: p}
}

// Close exports what is there, until ctx ends.
func (t *Tracer) Close(ctx context.Context) {
	if t != nil {
		_ = t.provider.Shutdown(ctx) // the exporter has logged the error
	}
}

// exporter logs that spans are lost, and that they aren't any more.
type exporter struct {
	sdk.SpanExporter
	to      string
	lg      *zap.Logger
	failing atomic.Bool
}

func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !errors.Is(err, context.Canceled) && !e.failing.Swap(true):
		e.lg.Warn("spans are lost: they can't be exported", zap.String("distributed-tracing-address", e.to), zap.Error(err))
	case err == nil && e.failing.Swap(false):
		e.lg.Info("spans are exported again", zap.String("distributed-tracing-address", e.to))
	}
	return nil // else the library prints it
}

// header is the field of a request's metadata with the client's span.
const header = "traceparent"

var w3c propagation.TraceContext

// Begin begins the span of a request of a client, if it is sampled. method is as gRPC has it,
// "/service/method".
func (t *Tracer) Begin(ctx context.Context, method string) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	parent := context.Background()
	if sent := incoming.First(ctx, header); sent != "" {
		parent = w3c.Extract(parent, propagation.MapCarrier{header: sent})
	}
	switch sc := trace.SpanContextFromContext(parent); {
	case sc.IsValid() && !sc.IsSampled(), !sc.IsValid() && rand.Uint32N(1_000_000) >= t.perMillion:
		return ctx, nil
	}
	name := strings.TrimPrefix(method, "/")
	service, short, _ := strings.Cut(name, "/")
	at, span := t.spans.Start(parent, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("rpc.system", "grpc"), attribute.String("rpc.service", service), attribute.String("rpc.method", short)))
	s := &Span{t: t, at: at, span: span}
	return context.WithValue(ctx, key{}, s), s
}

// Continue returns a span of another server as the parent of others here, by its Wire; nil if
// there is none.
func (t *Tracer) Continue(wire []byte) *Span {
	if t == nil {
		return nil
	}
	at := w3c.Extract(context.Background(), propagation.MapCarrier{header: string(wire)})
	if !trace.SpanContextFromContext(at).IsSampled() {
		return nil
	}
	return &Span{t: t, at: at, span: trace.SpanFromContext(at)}
}

type key struct{}

// Of returns the span of a request; nil if it isn't sampled.
func (t *Tracer) Of(ctx context.Context) *Span {
	if t == nil {
		return nil
	}
	s, _ := ctx.Value(key{}).(*Span)
	return s
}
