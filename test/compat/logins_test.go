package compat

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var authenticates = regexp.MustCompile(`grpc_server_started_total\{grpc_method="Authenticate",[^}]*\} (\d+)`)

// A thousand logins may wait for their passwords to be hashed, beside those whose turn it is. What comes then is refused,
// but for passwords that were right before at the same member, and for as long as there is no place.
func TestTooManyLogins(t *testing.T) {
	users(t, 1, nil, func(t *testing.T, g *guarded) {
		arrived := func() int {
			_, text := g.httpGet(g.Servers[0].ClientURL + "/metrics")
			n, err := strconv.Atoi(authenticates.FindStringSubmatch(text)[1])
			require.NoError(t, err)
			return n
		}
		server := pb.NewAuthClient(g.dial(0))
		_, err := server.Authenticate(g.ctx, &pb.AuthenticateRequest{Name: "a", Password: "a"})
		require.NoError(t, err) // this member knows that the password is right
		ctx, leave := context.WithCancel(g.ctx)
		defer leave()
		guess := func(i int, results chan<- error) {
			_, err := server.Authenticate(ctx, &pb.AuthenticateRequest{Name: "a", Password: fmt.Sprint("wrong", i)})
			results <- err
		}
		places := 1000 + max(1, runtime.GOMAXPROCS(0)/2)
		first, more := make(chan error, places), make(chan error, 100_000)
		before := arrived()
		for i := range places {
			go guess(i, first)
		}
		require.Eventually(t, func() bool { return arrived() >= before+places }, time.Minute, 10*time.Millisecond)
		time.Sleep(200 * time.Millisecond) // the last of them is counted before it waits

		// Those whose turn it was meanwhile have left places.
		var refusal error
		for i := places; refusal == nil && i < cap(more); i++ {
			go guess(i, more)
			select {
			case err := <-more:
				if status.Code(err) != codes.InvalidArgument { // its turn came
					refusal = err
				}
			case <-time.After(time.Millisecond):
			}
		}
		s, _ := status.FromError(refusal)
		require.Equal(t, codes.ResourceExhausted, s.Code())
		require.Equal(t, "etcdserver: too many requests", s.Message())
		require.ErrorIs(t, rpctypes.Error(refusal), rpctypes.ErrTooManyRequests)

		_, err = server.Authenticate(g.ctx, &pb.AuthenticateRequest{Name: "a", Password: "a"})
		require.NoError(t, err, "that password was right before")
		_, err = g.a.Put(g.ctx, "/a/1", "v")
		require.NoError(t, err)

		leave()
		for range places {
			code := status.Code(<-first)
			require.Contains(t, []codes.Code{codes.Canceled, codes.InvalidArgument}, code, "one of the first thousand was refused for their number")
		}
		require.Eventually(t, func() bool {
			_, err = server.Authenticate(g.ctx, &pb.AuthenticateRequest{Name: "b", Password: "wrong"})
			return status.Code(err) != codes.ResourceExhausted
		}, time.Minute, 10*time.Millisecond)
		require.ErrorIs(t, rpctypes.Error(err), rpctypes.ErrAuthFailed)
	})
}
