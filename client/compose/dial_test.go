package compose

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// silent is a cluster of which nothing comes, and which has users.
func silent(endpoints ...string) Cluster {
	return Cluster{
		Endpoints: endpoints, Kind: Etcd, Username: "app", Password: "secret",
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})},
	}
}

// Config.Timeout is kept though an answer is needed to make the cluster's client, and whatever the number of those that
// need it.
func TestTimeoutWithAPassword(t *testing.T) {
	const timeout, dialTimeout = 100 * time.Millisecond, 3 * time.Second
	c, err := New(Config{
		Clusters: map[string]Cluster{"one": silent("127.0.0.1:1", "127.0.0.1:2")}, Routes: []Route{{Cluster: "one"}},
		Timeout: timeout, DialTimeout: dialTimeout,
	})
	require.NoError(t, err)
	defer c.Close()
	began := time.Now()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			_, err := c.Fork().Put(t.Context(), "a", "")
			var named *ClusterError
			if !errors.As(err, &named) || !errors.Is(err, ErrSilent) {
				t.Errorf("a put: %v", err)
			}
		})
	}
	all.Go(func() {
		if r := <-c.Watch(t.Context(), "a"); r.Err() == nil {
			t.Errorf("a watch: %v", r)
		}
	})
	all.Go(func() {
		if _, err := c.Grant(t.Context(), 10); !errors.Is(err, ErrSilent) {
			t.Errorf("a lease: %v", err)
		}
	})
	all.Wait()
	require.Less(t, time.Since(began), dialTimeout/2)
}

// All that need a client meanwhile wait for one attempt, each as long as it can; its error isn't kept.
func TestDialledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{}
		var d dialled[*clientv3.Client]
		attempts, answer := 0, make(chan error)
		get := func(ctx context.Context) (*clientv3.Client, error) {
			return reach(ctx, c, &d, func() (*clientv3.Client, error) {
				attempts++
				if err := <-answer; err != nil {
					return nil, err
				}
				return clientv3.NewCtxClient(t.Context()), nil
			})
		}
		for i, want := range []error{errors.New("no answer"), nil} {
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					if got, err := get(t.Context()); !errors.Is(err, want) || (got == nil) != (err != nil) {
						t.Errorf("%v, %v", got, err)
					}
				})
			}
			synctest.Wait()
			left, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := get(left)
			require.ErrorIs(t, err, context.Canceled)
			answer <- want
			all.Wait()
			require.Equal(t, i+1, attempts)
		}
	})
}

// The error of an attempt that had begun before says nothing to those that came later: they wait for another one.
func TestDialledAgainForThoseWhoCameLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{}
		var d dialled[*clientv3.Client]
		answer := make(chan error)
		get := func() <-chan error {
			result := make(chan error)
			go func() {
				_, err := reach(t.Context(), c, &d, func() (*clientv3.Client, error) {
					if err := <-answer; err != nil {
						return nil, err
					}
					return clientv3.NewCtxClient(t.Context()), nil
				})
				result <- err
			}()
			synctest.Wait()
			time.Sleep(time.Second)
			return result
		}
		first, second, third := get(), get(), get()
		broken := errors.New("no answer")
		answer <- broken
		require.ErrorIs(t, <-first, broken)
		answer <- nil
		require.NoError(t, <-second)
		require.NoError(t, <-third)
	})
}

// admitting is a member that authenticates users, if it answers at all.
type admitting struct {
	pb.UnimplementedAuthServer
	answers bool
}

func (m admitting) Authenticate(ctx context.Context, _ *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	if !m.answers {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &pb.AuthenticateResponse{Header: &pb.ResponseHeader{}, Token: "one"}, nil
}

// A client with a password begins at a member that answers, if the preferred one is cut off from the others, and returns to that.
func TestPasswordBesideMembersThatAreCutOff(t *testing.T) {
	t.Parallel()
	alone := func(g *grpc.Server) {
		pb.RegisterAuthServer(g, admitting{})
		cutOff{}.register(g)
	}
	reaches := func(g *grpc.Server) {
		pb.RegisterAuthServer(g, admitting{answers: true})
		pb.RegisterKVServer(g, comparing{})
	}
	c, err := New(Config{
		Clusters: map[string]Cluster{"one": {
			Near: []string{serve(t, alone)}, Endpoints: []string{serve(t, alone), serve(t, reaches)}, Kind: Etcd, Username: "app", Password: "secret",
		}},
		Routes: []Route{{Cluster: "one"}}, DialTimeout: 300 * time.Millisecond,
	})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Get(t.Context(), "a")
	require.NoError(t, err)
	of := c.shared.clusters[0]
	of.mu.Lock()
	defer of.mu.Unlock()
	require.Equal(t, 2, of.present)
	require.NotNil(t, of.away)
}
