package tracing

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	sampled   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

func tracer(t *testing.T, perMillion int) (*Tracer, *tracetest.InMemoryExporter) {
	out := tracetest.NewInMemoryExporter()
	tr := newTracer(Options{Service: "stoa", Instance: "s1", PerMillion: perMillion}, out)
	t.Cleanup(func() { tr.Close(context.Background()) })
	return tr, out
}

func from(t *testing.T, traceparent string) context.Context {
	if traceparent == "" {
		return t.Context()
	}
	return metadata.NewIncomingContext(t.Context(), metadata.Pairs(header, traceparent))
}

// A client decides for its requests, the rate for those of clients that say nothing.
func TestSampling(t *testing.T) {
	for _, tc := range []struct {
		perMillion  int
		traceparent string
		want        bool
	}{
		{0, "", false}, {1_000_000, "", true},
		{0, sampled, true}, {1_000_000, unsampled, false},
		{0, "nonsense", false}, {1_000_000, "nonsense", true},
	} {
		tr, _ := tracer(t, tc.perMillion)
		ctx, s := tr.Begin(from(t, tc.traceparent), "/etcdserverpb.KV/Put")
		require.Equal(t, tc.want, s != nil, "%+v", tc)
		require.Equal(t, s, tr.Of(ctx))
	}
	tr, _ := tracer(t, 500_000)
	n := 0
	for range 1000 {
		if _, s := tr.Begin(t.Context(), "/a/b"); s != nil {
			n++
		}
	}
	require.InDelta(t, 500, n, 150) // nine standard deviations
}

func TestSpansOfARequest(t *testing.T) {
	tr, out := tracer(t, 0)
	_, request := tr.Begin(from(t, sampled), "/etcdserverpb.KV/Put")
	forward := request.Child("forward")
	at := time.Now()
	tr.Continue(forward.Wire()).Part("log", at, at.Add(time.Millisecond), attribute.Int("stoa.partition", 1))
	forward.Done()
	request.Answering(at)
	request.End(status.Error(grpccodes.PermissionDenied, "a text with data"))
	require.NoError(t, tr.provider.ForceFlush(t.Context()))

	byName := map[string]tracetest.SpanStub{}
	for _, s := range out.GetSpans() {
		byName[s.Name] = s
		require.Equal(t, sampled[3:35], s.SpanContext.TraceID().String())
		require.Equal(t, []attribute.KeyValue{attribute.String("service.instance.id", "s1"), attribute.String("service.name", "stoa")}, s.Resource.Attributes())
	}
	require.Len(t, byName, 4)
	put := byName["etcdserverpb.KV/Put"]
	require.Equal(t, sampled[36:52], put.Parent.SpanID().String())
	require.Equal(t, sdk.Status{Code: codes.Error, Description: "PermissionDenied"}, put.Status)
	require.Equal(t, put.SpanContext.SpanID(), byName["forward"].Parent.SpanID())
	require.Equal(t, put.SpanContext.SpanID(), byName["answer"].Parent.SpanID())
	require.Equal(t, byName["forward"].SpanContext.SpanID(), byName["log"].Parent.SpanID())
	require.Equal(t, time.Millisecond, byName["log"].EndTime.Sub(byName["log"].StartTime))
}

func TestNothingIsTraced(t *testing.T) {
	var off *Tracer
	ctx, s := off.Begin(from(t, sampled), "/a/b")
	require.Nil(t, s)
	require.Nil(t, off.Of(ctx))
	require.Nil(t, off.Continue([]byte(sampled)))
	off.Close(t.Context())
	s.Child("c").Done()
	s.Part("p", time.Time{}, time.Time{})
	s.Answering(time.Time{})
	s.End(nil)
	require.Nil(t, s.Wire())
	tr, _ := tracer(t, 0)
	for _, wire := range []string{"", "nonsense", unsampled} {
		require.Nil(t, tr.Continue([]byte(wire)))
	}
	ctx = from(t, unsampled)
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = off.Begin(ctx, "/a/b") }))
}

type broken struct {
	sdk.SpanExporter
	err error
}

func (b *broken) ExportSpans(context.Context, []sdk.ReadOnlySpan) error { return b.err }

// A collector that is away is worth one line.
func TestLostSpansAreLoggedOnce(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	b := &broken{err: errors.New("no collector")}
	e := &exporter{SpanExporter: b, to: "c:1", lg: zap.New(core)}
	for range 3 {
		require.NoError(t, e.ExportSpans(t.Context(), nil))
	}
	b.err = nil
	for range 3 {
		require.NoError(t, e.ExportSpans(t.Context(), nil))
	}
	require.Equal(t, 1, logs.FilterMessage("spans are lost: they can't be exported").Len())
	require.Equal(t, 1, logs.FilterMessage("spans are exported again").Len())
	require.Equal(t, 2, logs.Len())
}

// FuzzTraceparent has the headers of clients, and the spans of other servers, hold any text: what is
// taken over is what they say, and what goes to other servers has the form of a span.
func FuzzTraceparent(f *testing.F) {
	for _, seed := range []string{
		"", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
	} {
		f.Add(seed)
	}
	tr := newTracer(Options{Service: "stoa"}, tracetest.NewNoopExporter())
	f.Cleanup(func() { tr.Close(context.Background()) })
	f.Fuzz(func(t *testing.T, text string) {
		ctx, s := tr.Begin(metadata.NewIncomingContext(context.Background(), metadata.MD{header: {text}}), "/etcdserverpb.KV/Put")
		require.Equal(t, s, tr.Of(ctx))
		if s != nil {
			wire := string(s.Wire())
			require.Len(t, wire, len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
			require.Contains(t, strings.ToLower(text), wire[3:35], "the trace is the client's")
			require.NotNil(t, tr.Continue([]byte(wire)))
			s.End(nil)
		}
		if other := tr.Continue([]byte(text)); other != nil {
			require.Contains(t, strings.ToLower(text), string(other.Wire())[3:35])
		}
	})
}
