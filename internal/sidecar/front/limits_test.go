package front

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/peer"
)

func connected(t *testing.T, l Limits) context.Context {
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	_, info, err := l.Credentials().ServerHandshake(a)
	require.NoError(t, err)
	return peer.NewContext(t.Context(), &peer.Peer{AuthInfo: info})
}

func TestLimits(t *testing.T) {
	size := func(n int) func() int { return func() int { return n } }
	one, other := Limits{Requests: 2, Bytes: 100}, Limits{}
	ctx := connected(t, one)
	first, n, err := Admit(ctx, size(1000))
	require.NoError(t, err, "the only one may be large")
	_, _, err = Admit(ctx, size(1))
	require.Equal(t, rpctypes.ErrGRPCRequestTooManyRequests, err, "bytes")
	first.Release(n)
	var taken []*Connection
	for range 2 {
		a, _, err := Admit(ctx, size(10))
		require.NoError(t, err)
		taken = append(taken, a)
	}
	_, _, err = Admit(ctx, size(1))
	require.Equal(t, rpctypes.ErrGRPCRequestTooManyRequests, err, "requests")
	_, _, err = Admit(connected(t, one), size(1))
	require.NoError(t, err, "another connection")
	taken[0].Release(10)
	_, _, err = Admit(ctx, size(1))
	require.NoError(t, err)

	for range 1000 {
		a, n, err := Admit(connected(t, other), size(1<<30))
		require.NoError(t, err)
		a.Release(n)
	}
}

func TestSeen(t *testing.T) {
	one, other := Of(connected(t, Limits{})), Of(connected(t, Limits{Requests: 1}))
	one.See(7)
	one.See(5)
	require.EqualValues(t, 7, one.Seen())
	require.Zero(t, other.Seen())
	one.Forget(3)
	require.EqualValues(t, 3, one.Seen())
	nobody := Of(t.Context())
	nobody.See(7)
	nobody.Forget(3)
	require.Zero(t, nobody.Seen())
}
