package tenant

import "context"

type countedKey struct{}

// WithCounted returns a context whose requests are parts of one that has been counted: a
// service that carries out a client's request by several.
func WithCounted(ctx context.Context) context.Context {
	if Counted(ctx) {
		return ctx
	}
	return context.WithValue(ctx, countedKey{}, true)
}

// Counted reports whether the context is of [WithCounted].
func Counted(ctx context.Context) bool { return ctx.Value(countedKey{}) != nil }
