package rpc

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/api/stoa/v1/sessionwire"
	"github.com/stoa-kv/stoa/internal/memory"
)

// A request that finds no memory is refused at once with etcd's error; when one that holds
// memory has been answered, the next is carried out.
func TestLargeRequestsWaitForNothing(t *testing.T) {
	b := memory.NewBudget(8 << 20)
	n, c := client(t, Options{Memory: b})
	ctx := testContext(t)
	commit := make(chan struct{})
	n.commit.Store(&commit)
	large := strings.Repeat("x", 600<<10) // three copies are most of a quarter of 8 MiB
	put := func() chan error {
		done := make(chan error, 1)
		go func() { _, err := c.Put(ctx, "large", large); done <- err }()
		return done
	}
	first := put()
	require.Eventually(t, func() bool { return b.Requests() > 1<<20 }, time.Minute, time.Millisecond)
	began := time.Now()
	require.ErrorIs(t, <-put(), rpctypes.ErrTooManyRequests)
	require.Less(t, time.Since(began), 5*time.Second)
	require.NotZero(t, b.Refused())
	_, err := c.Get(ctx, "small")
	require.NoError(t, err, "small requests go on")
	close(commit)
	require.NoError(t, <-first)
	require.NoError(t, <-put())
	require.Eventually(t, func() bool { b.Weigh(0, 0); return b.Requests() == 0 }, time.Minute, time.Millisecond)
}

// What is full keeps leases alive and can be looked into; what is over takes nothing new.
func TestRefusedByLevel(t *testing.T) {
	b := memory.NewBudget(8 << 20)
	n, c := client(t, Options{Memory: b})
	ctx := testContext(t)
	n.leases[7] = 100
	maintenance, cluster := pb.NewMaintenanceClient(c.ActiveConnection()), pb.NewClusterClient(c.ActiveConnection())
	alive := func() error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		stream, err := pb.NewLeaseClient(c.ActiveConnection()).LeaseKeepAlive(ctx)
		require.NoError(t, err)
		_ = stream.Send(&pb.LeaseKeepAliveRequest{ID: 7}) // if the stream is refused already, Recv says so
		_, err = stream.Recv()
		return rpctypes.Error(err)
	}
	look := func() error {
		if _, err := maintenance.Status(ctx, &pb.StatusRequest{}); err != nil {
			return rpctypes.Error(err)
		}
		_, err := cluster.MemberList(ctx, &pb.MemberListRequest{})
		return rpctypes.Error(err)
	}
	watch := func() error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		stream, err := pb.NewWatchClient(c.ActiveConnection()).Watch(ctx)
		require.NoError(t, err)
		_ = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("a")}}})
		_, err = stream.Recv()
		return rpctypes.Error(err)
	}
	use := func() error { _, err := c.Get(ctx, "a"); return err }

	b.Weigh(0, 0)
	require.NoError(t, use())
	require.NoError(t, watch())

	require.True(t, b.Take(b.Room()))
	b.Begin(0)
	b.Weigh(0, 0)
	require.ErrorIs(t, use(), rpctypes.ErrTooManyRequests)
	require.NoError(t, alive())
	require.NoError(t, look())

	calls := 1 + b.Room()/memory.PerCall
	for range calls {
		b.Begin(0)
	}
	b.Weigh(0, 0)
	require.ErrorIs(t, look(), rpctypes.ErrTooManyRequests)
	require.NoError(t, alive(), "it is a stream")
	b.Give(b.Room())
	for range calls + 1 {
		b.End(0)
	}

	streams := 1 + b.Room()/memory.PerStream
	for range streams {
		b.BeginStream()
	}
	b.Weigh(0, 0)
	require.NoError(t, use(), "streams that don't read keep no others from writing")
	require.ErrorIs(t, watch(), rpctypes.ErrTooManyRequests)
	require.NoError(t, alive())
	for range streams {
		b.BeginStream()
	}
	b.Weigh(0, 0)
	require.ErrorIs(t, alive(), rpctypes.ErrTooManyRequests)
	require.NoError(t, use())
}

// The headers of streams, which take room before it is known whose they are, keep no answers from being sent.
func TestHeadersOfStreamsLeaveAnswersAlone(t *testing.T) {
	b := memory.NewBudget(8 << 20)
	_, c := client(t, Options{Memory: b})
	ctx := testContext(t)
	_, err := c.Put(ctx, "a", strings.Repeat("x", 64<<10))
	require.NoError(t, err)
	require.NoError(t, lasting(b).Take(int(b.Room())))
	_, err = c.Get(ctx, "a")
	require.NoError(t, err)
}

// Answers count while the client doesn't take them, and no longer than its connection is there.
func TestAnswersThatAreNotRead(t *testing.T) {
	const size = 512 << 10 // a quarter of the room: if they come one by one, as on a busy machine, it is full with four, and not exceeded
	b := memory.NewBudget(8 << 20)
	// With windows of a fixed size: else the client measures the connection now and then, and takes more.
	_, c := client(t, Options{Memory: b}, grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(4<<20))
	// Without deadlines: grpc-go's timer of a call that is refused before its handler holds the connection until the deadline.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := c.Put(ctx, "a", strings.Repeat("x", size))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return b.Answers() == 0 }, time.Minute, time.Millisecond)
	// A stream takes one message; what follows waits for the client's window. Of those that come at the same time one may be
	// refused for the sake of another that is refused, too.
	for end := time.Now().Add(time.Minute); b.Fits(size); time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end), "the room isn't used up")
		_, err := pb.NewKVClient(c.ActiveConnection()).RangeStream(ctx, &pb.RangeRequest{Key: []byte("a"), SortTarget: pb.RangeRequest_VALUE})
		require.NoError(t, err)
	}
	_, err = c.Get(ctx, "a")
	require.ErrorIs(t, err, rpctypes.ErrTooManyRequests)
	_, err = c.Put(ctx, "b", "small")
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { runtime.GC(); return b.Answers() == 0 }, time.Minute, time.Millisecond)
}

// Messages that are counted are those that would have been sent without it.
func TestCountedMessages(t *testing.T) {
	b := memory.NewBudget(64 << 20)
	m := &pb.DeleteRangeResponse{Deleted: 1, PrevKvs: []*mvccpb.KeyValue{{Key: []byte("a"), Value: make([]byte, 100<<10)}}}
	want, err := proto.Marshal(m)
	require.NoError(t, err)
	data, err := codec{sessionwire.Codec(), b}.Marshal(m)
	require.NoError(t, err)
	require.Equal(t, want, data.Materialize())
	require.Greater(t, b.Answers(), int64(100<<10))
	data.Free()
	require.Zero(t, b.Answers())
}

// On either transport a call has headers of 64 KiB at most.
func TestLargeHeaders(t *testing.T) {
	_, conn := serve(t, Options{})
	put := func(n int) error {
		ctx := metadata.AppendToOutgoingContext(testContext(t), "large", strings.Repeat("x", n))
		_, err := pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: []byte("k")})
		return err
	}
	require.NoError(t, put(60<<10))
	require.ErrorContains(t, put(70<<10), "65536 bytes")
}
