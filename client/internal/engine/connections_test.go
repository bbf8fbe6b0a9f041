package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

// The last connection of a closed client ends with its last user, and there is none after it.
func TestConnectionsOfAClosedClient(t *testing.T) {
	p := newConnections(func(endpoint string) (*grpc.ClientConn, error) {
		return grpc.NewClient("passthrough:///"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	})
	used, err := p.acquire("a")
	require.NoError(t, err)
	used.borrow()
	idle, err := p.acquire("b")
	require.NoError(t, err)
	idle.release()
	require.NotEqual(t, connectivity.Shutdown, idle.GetState(), "it may be of use soon")

	p.close()
	require.Equal(t, connectivity.Shutdown, idle.GetState())
	used.release()
	require.NotEqual(t, connectivity.Shutdown, used.GetState(), "there is another user")
	used.release()
	require.Equal(t, connectivity.Shutdown, used.GetState())
	require.Empty(t, p.open)
	_, err = p.acquire("a")
	require.ErrorIs(t, err, ErrSessionClosed)
}

// A session of a closed client isn't looked for.
func TestSessionOfAClosedClient(t *testing.T) {
	c, err := New(Config{Endpoints: []string{"127.0.0.1:1"}})
	require.NoError(t, err)
	require.NoError(t, c.Close())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = c.Session(ctx, c.Options())
	require.ErrorIs(t, err, ErrSessionClosed)
}
