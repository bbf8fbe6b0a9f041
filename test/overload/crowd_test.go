package overload

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/test/process"
)

// Clients open a million watches, each of a key of its own. Those for which there is no memory are refused, the
// others see what is written.
func TestManyWatches(t *testing.T) {
	x := start(t, 1)
	term := x.term(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	const streams = 40
	each := scale(500, 1_000_000/streams)
	var opened, refused, events atomic.Int64
	var readers, creators sync.WaitGroup
	begin := make(chan struct{}) // when there are all streams
	for i := range streams {
		stream, err := pb.NewWatchClient(x.conn(t)).Watch(ctx)
		require.NoError(t, err)
		creators.Go(func() {
			<-begin
			for j := range each {
				if err := stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
					Key: fmt.Appendf(nil, "watched/%d/%d", i, j),
				}}}); err != nil {
					t.Error(err)
				}
			}
		})
		readers.Go(func() {
			for {
				r, err := stream.Recv()
				switch {
				case ctx.Err() != nil:
					return
				case err != nil:
					t.Error(err)
					return
				case r.Canceled:
					refused.Add(1)
					if !strings.Contains(r.CancelReason, "too many requests") {
						t.Error(r.CancelReason)
					}
				case r.Created:
					opened.Add(1)
				}
				events.Add(int64(len(r.Events)))
			}
		})
	}
	close(begin)
	creators.Wait()
	require.Eventually(t, func() bool { return opened.Load()+refused.Load() == int64(streams*each) }, time.Minute, 10*time.Millisecond, "each is answered")
	t.Logf("%d watches opened, %d refused", opened.Load(), refused.Load())
	writer := x.client(t)
	for i := range streams {
		_, err := writer.Put(ctx, fmt.Sprintf("watched/%d/0", i), "x")
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return events.Load() == streams }, time.Minute, 10*time.Millisecond)
	cancel()
	readers.Wait()
	x.check(t, term)
}

// A hundred thousand leases, each with a key, are granted to end at the same time.
func TestManyLeasesEnd(t *testing.T) {
	x := start(t, 3)
	term := x.term(t)
	ctx := t.Context()
	n := scale(2000, 100_000)
	const clients = 64
	c := x.client(t)
	grant := func(n int, prefix string, ttl func() time.Duration) {
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() {
				for j := i; j < n && !t.Failed(); j += clients {
					l, err := c.Grant(ctx, max(int64(ttl().Seconds()), 1))
					if err == nil {
						_, err = c.Put(ctx, fmt.Sprintf("%s%06d", prefix, j), "x", clientv3.WithLease(l.ID))
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	}
	began := time.Now() // a tenth of them, to learn how long all take here
	grant(n/10, "trial/", func() time.Duration { return time.Hour })
	end := time.Now().Add(max(time.Duration(scale(6, 90))*time.Second, 30*time.Since(began)))
	grant(n, "leased/", func() time.Duration { return time.Until(end) })
	granted := time.Now()
	require.Less(t, granted, end, "the first ended before the last was granted")
	left := func() int64 {
		r, err := c.Get(ctx, "leased/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(t, err)
		return r.Count
	}
	t.Logf("%d leases, %v before they end", left(), end.Sub(granted).Round(time.Second))
	require.Eventually(t, func() bool { return left() == 0 }, time.Until(end)+time.Minute, 50*time.Millisecond)
	t.Logf("all had ended %v after that", time.Since(end).Round(100*time.Millisecond))
	x.check(t, term)
}

// The leader dies under ten thousand clients with a connection each, and all come to the other servers at once.
func TestManyClientsReconnect(t *testing.T) {
	x := start(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	leader := x.leader(t)
	var others []*process.Server
	for _, s := range x.Servers {
		if s != leader {
			others = append(others, s)
		}
	}
	clients := scale(300, 10_000)
	conns := make([]*grpc.ClientConn, clients)
	each := func(f func(i int)) {
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() { f(i) })
		}
		wg.Wait()
	}
	// use has a client be served, by one of the other servers if its own doesn't.
	use := func(i int) {
		for n := i; ctx.Err() == nil; n++ {
			if conns[i] == nil {
				conns[i] = dial(t, others[n%len(others)])
			}
			_, err := pb.NewKVClient(conns[i]).Put(ctx, &pb.PutRequest{Key: fmt.Appendf(nil, "client/%05d", i), Value: []byte("x")})
			switch {
			case err == nil:
				return
			case errors.Is(rpctypes.Error(err), rpctypes.ErrTooManyRequests):
				time.Sleep(20 * time.Millisecond)
			case status.Code(err) == codes.Unavailable:
				_ = conns[i].Close()
				conns[i] = nil
			default:
				t.Error(err)
				return
			}
		}
		t.Errorf("client %d isn't served", i)
	}
	defer each(func(i int) {
		if conns[i] != nil {
			_ = conns[i].Close()
		}
	})
	each(func(i int) {
		conns[i] = dial(t, leader)
		use(i)
	})
	x.lenient.Store(true)
	require.NoError(t, leader.Kill())
	died := time.Now()
	each(use)
	t.Logf("all %d clients were served again %v after the leader died", clients, time.Since(died).Round(10*time.Millisecond))
	require.NoError(t, leader.Start())
	require.NoError(t, leader.WaitReady(ctx))
	x.lenient.Store(false)
	x.check(t, x.term(t))
}

// Ten times as many clients as the server does the most writes for, all of which want the next one at once: it
// goes on with at least seven tenths of them.
func TestTenTimesTheClients(t *testing.T) {
	if !*long {
		t.Skip("needs -long: it measures")
	}
	x := start(t, 1)
	term := x.term(t)
	of := func(clients int) load {
		return load{clients: clients, onEach: 10, keys: clients, bytes: 256, wait: 50 * time.Millisecond}
	}
	best, at := int64(0), 0
	for _, n := range []int{100, 300, 1000} {
		done, _, failed := x.writes(t, of(n), 5*time.Second)
		require.Zero(t, failed)
		if done > best {
			best, at = done, n
		}
	}
	done, refused, failed := x.writes(t, of(10*at), 10*time.Second)
	require.Zero(t, failed)
	done, refused = done/2, refused/2
	t.Logf("in 5 s %d writes of %d clients, and %d of %d, beside %d refusals: %.2f", best, at, done, 10*at, refused, float64(done)/float64(best))
	require.GreaterOrEqual(t, float64(done), 0.7*float64(best))
	x.check(t, term)
}

// leader is the server that leads the cluster.
func (x *target) leader(t *testing.T) *process.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c := x.client(t)
	for _, s := range x.Servers {
		st, err := c.Status(ctx, s.ClientURL)
		require.NoError(t, err)
		if st.Leader == st.Header.MemberId {
			return s
		}
	}
	require.Fail(t, "no leader")
	return nil
}
