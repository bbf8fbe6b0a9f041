package sidecar

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

func read(ctx context.Context, l *lane, body string) <-chan outcome {
	out := make(chan outcome, 1)
	go func() {
		got, err := l.do(ctx, shared{kind: stoapb.Kind_RANGE, body: []byte(body)})
		out <- outcome{string(got), err}
	}()
	return out
}

func (l *lane) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent.IsZero() && len(l.waiting) == 0
}

// TestReadAlone: a read that finds nothing under way is a call, and those that come meanwhile are one batch.
func TestReadAlone(t *testing.T) { synctest.Test(t, testReadAlone) }

func testReadAlone(t *testing.T) {
	l, s := opened(t)
	first := read(t.Context(), l, "first")
	call := <-s.calls
	second, third := read(t.Context(), l, "second"), read(t.Context(), l, "third")
	require.Eventually(t, func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.waiting) == 2 }, time.Minute, time.Millisecond)
	require.Empty(t, s.batches)
	call.give(nil)
	require.Equal(t, outcome{"first", nil}, <-first)
	batch := <-s.batches
	require.Len(t, batch, 2)
	for _, a := range batch {
		a.give(nil)
	}
	require.NoError(t, (<-second).err)
	require.NoError(t, (<-third).err)
	require.Empty(t, s.calls)
}

// TestReadAloneFails: a member's refusal is the answer; a read of which it has said nothing is forwarded.
func TestReadAloneFails(t *testing.T) { synctest.Test(t, testReadAloneFails) }

func testReadAloneFails(t *testing.T) {
	l, s := opened(t)
	for _, tc := range []struct{ err, want error }{
		{rpctypes.ErrGRPCCompacted, rpctypes.ErrGRPCCompacted},
		{status.Error(codes.Unavailable, "lost"), errNotTaken},
	} {
		got := read(t.Context(), l, "x")
		(<-s.calls).give(tc.err)
		require.Equal(t, tc.want, (<-got).err)
		require.Eventually(t, l.idle, time.Minute, time.Millisecond)
	}
	silent := read(t.Context(), l, "silent")
	<-s.calls
	require.Equal(t, errNotTaken, (<-silent).err, "after a while")

	ctx, cancel := context.WithCancel(t.Context())
	gone := read(ctx, l, "gone")
	<-s.calls
	cancel()
	require.ErrorIs(t, (<-gone).err, context.Canceled)
	require.Eventually(t, l.idle, time.Minute, time.Millisecond)
}

// TestWriteAlone: a write whose caller has gone is under way until it is answered.
func TestWriteAlone(t *testing.T) { synctest.Test(t, testWriteAlone) }

func testWriteAlone(t *testing.T) {
	l, s := opened(t)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := l.do(ctx, shared{kind: stoapb.Kind_PUT, body: []byte("gone"), write: true})
		gone <- err
	}()
	batch := <-s.batches
	cancel()
	require.ErrorIs(t, <-gone, context.Canceled)
	next := ask(t, l, "next")
	require.Eventually(t, func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.waiting) == 1 }, time.Minute, time.Millisecond)
	require.Empty(t, s.batches)
	batch[0].give(nil)
	batch = <-s.batches
	require.Equal(t, "next", string(batch[0].body))
	batch[0].give(nil)
	require.Equal(t, outcome{"next", nil}, <-next)
	require.Eventually(t, l.idle, time.Minute, time.Millisecond)
}
