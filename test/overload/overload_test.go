package overload

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/test/process"
)

var long = flag.Bool("long", false, "attacks as large as clients can be")

// scale is n, or as many as the short tests have.
func scale(short, n int) int {
	if *long {
		return n
	}
	return short
}

const (
	mib   = 1 << 20
	limit = 256 * mib
	// slack is what Go's limit isn't sharp by. The program and the mapped part of the state file
	// don't count: the kernel takes them back when it needs to.
	slack = 32 * mib
)

// target is a cluster with a limit of memory, and a client that is to be served meanwhile.
type target struct {
	*process.Cluster
	beside  *clientv3.Client
	lenient atomic.Bool // a server isn't there, and requests may fail

	mu      sync.Mutex
	peak    int64           // resident bytes that aren't of files, of any server
	took    []time.Duration // by the client's requests, answers and refusals
	refused int
	failed  error // anything else
	stop    context.CancelFunc
	wg      sync.WaitGroup
}

// start starts servers and watches them until the test ends.
func start(t *testing.T, nodes int) *target {
	t.Helper()
	bin, err := process.UnderTest()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	c, err := process.Start(ctx, process.Spec{
		Binary: bin, Nodes: nodes, Dir: t.TempDir(), Partitions: 2,
		Args: []string{fmt.Sprintf("--memory-limit=%d", limit)},
	})
	require.NoError(t, err)
	x := &target{Cluster: c, stop: cancel}
	x.beside = x.client(t)
	_, err = x.beside.Put(ctx, "beside", "x")
	require.NoError(t, err)
	x.wg.Go(func() { x.measure(ctx) })
	x.wg.Go(func() { x.use(ctx) })
	t.Cleanup(func() {
		cancel()
		x.wg.Wait()
		if t.Failed() {
			for _, s := range c.Servers {
				t.Logf("%s: %s", s.Name, s.LogTail(4<<10))
			}
		}
		_ = c.Close()
	})
	return x
}

func (x *target) client(t *testing.T) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: x.Endpoints(), DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// conn is a connection of its own.
func (x *target) conn(t *testing.T) *grpc.ClientConn {
	t.Helper()
	c := dial(t, x.Servers[0])
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func dial(t *testing.T, s *process.Server) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(strings.TrimPrefix(s.ClientURL, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	return c
}

func (x *target) measure(ctx context.Context) {
	for ctx.Err() == nil {
		for _, s := range x.Servers {
			all, mapped, err := s.Memory()
			x.mu.Lock()
			x.peak = max(x.peak, all-mapped)
			x.mu.Unlock()
			if err != nil && ctx.Err() == nil && !x.lenient.Load() {
				x.fail(err)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (x *target) fail(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.failed = errors.Join(x.failed, err)
}

// use does small requests, as the client beside.
func (x *target) use(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		began := time.Now()
		_, err := x.beside.Put(ctx, "beside", fmt.Sprint(i))
		took := time.Since(began)
		x.mu.Lock()
		switch {
		case ctx.Err() != nil, err != nil && x.lenient.Load():
		case errors.Is(err, rpctypes.ErrTooManyRequests):
			x.refused++
			x.took = append(x.took, took)
		case err == nil:
			x.took = append(x.took, took)
		default:
			x.failed = errors.Join(x.failed, err)
		}
		x.mu.Unlock()
		time.Sleep(5 * time.Millisecond)
	}
}

// check checks what holds in every overload, and that it is over soon after.
func (x *target) check(t *testing.T, term uint64) {
	t.Helper()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err := x.beside.Put(ctx, "after", "x")
		return err == nil
	}, 30*time.Second, 20*time.Millisecond, "it is served again")
	x.stop()
	x.wg.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	slices.Sort(x.took)
	p99 := x.took[len(x.took)*99/100]
	t.Logf("peak %d MiB; beside: %d requests, %d refused, p99 %v, longest %v", x.peak/mib, len(x.took), x.refused, p99, x.took[len(x.took)-1])
	require.NoError(t, x.failed, "the client beside is served or refused")
	require.Less(t, x.peak, int64(limit+slack), "resident bytes")
	require.Equal(t, term, x.term(t), "no election")
}

func (x *target) term(t *testing.T) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	st, err := x.client(t).Status(ctx, x.Servers[0].ClientURL)
	require.NoError(t, err)
	return st.RaftTerm
}

// load is clients that write without end.
type load struct {
	clients int
	onEach  int           // connection
	keys    int           // of all of them
	bytes   int           // of a value
	wait    time.Duration // of who is refused
}

// writes counts what the writes of a load came to in some time.
func (x *target) writes(t *testing.T, l load, length time.Duration) (done, refused, failed int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var did, not, other atomic.Int64
	var wg sync.WaitGroup
	var kvs []pb.KVClient
	value := []byte(strings.Repeat("x", l.bytes))
	for i := range l.clients {
		if i%l.onEach == 0 {
			conn := dial(t, x.Servers[0])
			defer conn.Close()
			kvs = append(kvs, pb.NewKVClient(conn))
		}
		kv := kvs[i/l.onEach]
		wg.Go(func() {
			for ctx.Err() == nil {
				_, err := kv.Put(ctx, &pb.PutRequest{Key: fmt.Appendf(nil, "load/%05d", i%l.keys), Value: value})
				switch {
				case err == nil:
					did.Add(1)
				case ctx.Err() != nil, status.Code(err) == codes.DeadlineExceeded: // its own clock may be ahead
				case errors.Is(rpctypes.Error(err), rpctypes.ErrTooManyRequests):
					not.Add(1)
					time.Sleep(l.wait)
				default:
					if other.Add(1) == 1 {
						t.Log(err)
					}
				}
			}
		})
	}
	wg.Wait()
	return did.Load(), not.Load(), other.Load()
}

// Many clients, each with a connection of its own, put values of the largest size at once.
func TestLargestRequests(t *testing.T) {
	x := start(t, 1)
	term := x.term(t)
	done, refused, failed := x.writes(t, load{clients: scale(150, 1000), onEach: 1, keys: 8, bytes: 3*mib/2 - 1000, wait: 20 * time.Millisecond},
		time.Duration(scale(5, 30))*time.Second)
	t.Logf("%d carried out, %d refused, %d failed otherwise", done, refused, failed)
	require.NotZero(t, done)
	x.check(t, term)
}

// A client asks for large values, and never reads the answers.
func TestAnswersNeverRead(t *testing.T) {
	x := start(t, 1)
	term := x.term(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i := range 8 {
		_, err := x.beside.Put(ctx, fmt.Sprintf("large/%d", i), strings.Repeat("x", mib))
		require.NoError(t, err)
	}
	for range scale(4, 100) {
		kv := pb.NewKVClient(x.conn(t))
		for range 200 {
			_, err := kv.RangeStream(ctx, &pb.RangeRequest{Key: []byte("large/"), RangeEnd: []byte("large0"), SortTarget: pb.RangeRequest_VALUE})
			require.NoError(t, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(2 * time.Second)
	cancel()
	x.check(t, term)
}

// Clients without a user begin calls, as fast as they can, and don't go on: with headers of 50 KB, which take 31 bytes (an
// index of one byte stands for 3.6 KB of them), or of a few, and of streams.
func TestCallsThatOnlyBegin(t *testing.T) {
	for name, c := range map[string]struct {
		method   string
		large    int // fields
		short, n int // on each connection
	}{
		"large headers": {pb.KV_Put_FullMethodName, 14, 4000, 30_000},
		"small headers": {pb.KV_Put_FullMethodName, 0, 40_000, 70_000},
		"streams":       {pb.Watch_Watch_FullMethodName, 0, 20_000, 70_000},
	} {
		t.Run(name, func(t *testing.T) {
			x := start(t, 1)
			term := x.term(t)
			for range 8 {
				nc, err := net.Dial("tcp", strings.TrimPrefix(x.Servers[0].ClientURL, "http://"))
				require.NoError(t, err)
				defer nc.Close()
				go func() { _, _ = io.Copy(io.Discard, nc) }()
				_, err = nc.Write(begun(t, c.method, c.large, scale(c.short, c.n)))
				require.NoError(t, err)
			}
			time.Sleep(2 * time.Second)
			x.check(t, term)
		})
	}
}

// begun is the beginnings of n calls, each with so many large headers.
func begun(t *testing.T, method string, large, n int) []byte {
	var all, block bytes.Buffer
	_, _ = all.WriteString(http2.ClientPreface)
	f, e := http2.NewFramer(&all, nil), hpack.NewEncoder(&block)
	require.NoError(t, f.WriteSettings())
	for id := uint32(1); id < 2*uint32(n); id += 2 {
		block.Reset()
		for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {"content-type", "application/grpc"}} {
			require.NoError(t, e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}))
		}
		for range large {
			require.NoError(t, e.WriteField(hpack.HeaderField{Name: "x-bin", Value: strings.Repeat("AAAA", 900)}))
		}
		require.NoError(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true}))
	}
	return all.Bytes()
}

// A client opens watches on streams of their own without end.
func TestStreamsWithoutEnd(t *testing.T) {
	x := start(t, 1)
	term := x.term(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var opened, refused atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		w := pb.NewWatchClient(x.conn(t))
		wg.Go(func() {
			for range scale(2000, 50_000) {
				stream, err := w.Watch(ctx)
				if err == nil {
					err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("w")}}})
				}
				if err == nil {
					opened.Add(1)
				} else {
					refused.Add(1)
				}
			}
		})
	}
	wg.Wait()
	time.Sleep(time.Second)
	cancel()
	t.Logf("%d streams opened, %d refused", opened.Load(), refused.Load())
	x.check(t, term)
}

// Watches that never read, of keys with large values that change.
func TestWatchesNeverRead(t *testing.T) {
	x := start(t, 1)
	term := x.term(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := pb.NewWatchClient(x.conn(t))
	for range scale(300, 2000) {
		stream, err := w.Watch(ctx)
		require.NoError(t, err)
		require.NoError(t, stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("w")}}}))
	}
	value := strings.Repeat("x", 256<<10)
	writer := x.client(t)
	var refused int
	for range scale(200, 1000) {
		_, err := writer.Put(ctx, "w", value)
		if errors.Is(err, rpctypes.ErrTooManyRequests) {
			refused++
			time.Sleep(10 * time.Millisecond)
			continue
		}
		require.NoError(t, err)
	}
	t.Logf("%d of the writes refused", refused)
	cancel()
	x.check(t, term)
}
