// Package tracing makes spans of sampled requests and exports them over OTLP, with the
// OpenTelemetry libraries. It knows nothing of stoa.
//
// Invariants:
//
//  1. A request that isn't sampled has a nil *Span, on which every method does nothing; with a
//     nil *Tracer none is sampled.
//  2. Nothing here blocks: spans that can't be exported in time are dropped, and the log says
//     so once.
//  3. There is no global provider, propagator or error handler.
//
// A request comes in through [Tracer.Begin], with the span of its client, if that sends one; on
// another server, which has got [Span.Wire], through [Tracer.Continue].
package tracing
