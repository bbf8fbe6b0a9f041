package incoming

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"
)

func TestValuesAreThoseOfPackageMetadata(t *testing.T) {
	with := func(ctx context.Context, fields ...string) context.Context {
		return metadata.NewIncomingContext(ctx, metadata.Pairs(fields...))
	}
	outer := with(t.Context(), "Token", "a.1", "token", "b.2", "other", "x")
	derived, cancel := context.WithCancel(outer)
	defer cancel()
	inner := with(derived, "other", "y")
	outgoing := metadata.AppendToOutgoingContext(t.Context(), "token", "c.3")
	for _, ctx := range []context.Context{t.Context(), outer, derived, inner, outgoing} {
		for _, field := range []string{"token", "other", "missing"} {
			require.Equal(t, metadata.ValueFromIncomingContext(ctx, field), Values(ctx, field), field)
		}
	}
	require.Equal(t, "a.1", First(derived, "token"))
	require.Empty(t, First(inner, "token"), "another request's metadata hide those around it")
	require.Zero(t, testing.AllocsPerRun(100, func() { First(derived, "token") }))
}
