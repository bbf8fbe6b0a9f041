package h2_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/internal/h2"
)

// Handlers that wait don't hold up the other calls of their connection, whether they have been
// called by its reader or by that of a moment ago.
func TestHandlersThatDetach(t *testing.T) {
	r := newRig(t, h2.Options{})
	r.entered = make(chan struct{})
	ctx, cancel := context.WithCancel(context10(t))
	var waiting sync.WaitGroup
	for range 20 {
		waiting.Go(func() {
			_, err := r.cli.UnaryCall(ctx, &grpc_testing.SimpleRequest{FillUsername: true})
			if code := status.Code(err); code != codes.Canceled {
				t.Errorf("a call that was cancelled: %v", err)
			}
		})
		<-r.entered
		for range 100 {
			_, err := r.cli.EmptyCall(context10(t), &grpc_testing.Empty{})
			require.NoError(t, err)
		}
	}
	cancel()
	waiting.Wait()
	require.Eventually(t, func() bool { return r.running.Load() == 0 }, 10*time.Second, time.Millisecond)
}

// Detach means nothing to other handlers.
func TestDetachElsewhere(t *testing.T) {
	h2.Detach(context.Background())
	r := newRig(t, h2.Options{Inline: []string{}})
	ctx, cancel := context.WithCancel(context10(t))
	cancel()
	_, err := r.cli.UnaryCall(ctx, &grpc_testing.SimpleRequest{FillUsername: true})
	require.Equal(t, codes.Canceled, status.Code(err))
	_, err = r.cli.EmptyCall(context10(t), &grpc_testing.Empty{})
	require.NoError(t, err)
}
