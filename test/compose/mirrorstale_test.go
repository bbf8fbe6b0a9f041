package compose

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	mirrored "github.com/stoa-kv/stoa/client/mirror/cluster"
	mirrorworker "github.com/stoa-kv/stoa/client/mirror/worker"
	"github.com/stoa-kv/stoa/test/compose/osc"
)

// An executor is stopped by SIGSTOP between reading a change at home and writing it. Its lease ends, and
// another one is elected, writes that change and a later one of the same key, and is about to write a third
// one when the first goes on. The late write is refused: else the third one's mark would belong to the
// first one's keys, and a client would read what it had seen replaced.
func TestMirrorStaleExecutor(t *testing.T) {
	for i, kinds := range [][]string{{"stoa", "etcd"}, {"etcd", "stoa"}} {
		t.Run(kinds[0]+" in "+kinds[1], func(t *testing.T) {
			if i > 0 && !*allCases {
				t.Skip("asked for by -all")
			}
			all := startEach(t, kinds...)
			m := newMirrorTest(t, all, 0)
			h := osc.NewHistory()
			client := func(id int, local string) *worker {
				return &worker{id: id, by: oneOrder(all.mirrored(t, local), 1), h: h, clusters: 1, rnd: rand.New(rand.NewPCG(0, 0))}
			}
			writer, reader := client(0, ""), client(1, name(1))
			changed, third := m.prefix+keys[0], m.prefix+keys[1]

			stale := m.startExecutor(mirrorStopVar + "=" + changed)
			defer func() { _, _ = stale.Process.Kill(), stale.Wait() }()
			<-writer.put(third)
			m.caughtUp()
			<-writer.put(changed)
			m.stopped(stale)

			hold := &holding{key: third, held: make(chan struct{}), release: make(chan struct{})}
			defer m.work(hold)()
			<-writer.put(changed)
			m.caughtUp()
			<-reader.get(changed) // synced, at home
			<-reader.get(changed)
			require.EqualValues(t, 1, reader.by[0].Stats().Mirrored)

			<-writer.put(third)
			<-hold.held
			require.NoError(t, stale.Process.Signal(syscall.SIGCONT))
			m.stopped(stale) // again, with its answer
			close(hold.release)
			m.caughtUp()
			<-reader.get(third)
			<-reader.get(changed)
			require.EqualValues(t, 3, reader.by[0].Stats().Mirrored)
			require.NoError(t, all.check(t, h))
			_, ok := m.compare()
			require.True(t, ok)
		})
	}
}

// A revision that takes an executor two transactions is read at home until the second one is written: the mirror has
// one of its keys, and not the other.
func TestMirrorSplitRevision(t *testing.T) {
	for _, kinds := range [][]string{{"stoa", "etcd"}, {"etcd", "stoa"}} {
		t.Run(kinds[0]+" in "+kinds[1], func(t *testing.T) {
			all := startEach(t, kinds...)
			m := newMirrorTest(t, all, 0)
			h := osc.NewHistory()
			client := func(id int, local string) *worker {
				return &worker{id: id, by: oneOrder(all.mirrored(t, local), 1), h: h, clusters: 1, rnd: rand.New(rand.NewPCG(0, 0))}
			}
			writer, reader := client(0, ""), client(1, name(1))
			first, second := m.prefix+keys[0], m.prefix+keys[1]
			hold := &holding{key: second, held: make(chan struct{}), release: make(chan struct{})}
			release := sync.OnceFunc(func() { close(hold.release) })
			end := m.work(hold, func(c *mirrorworker.Config) { c.MaxTxnOps = 1 })
			defer end()
			defer release()
			<-writer.put(first)
			m.caughtUp()
			<-reader.get(first) // synced, at home
			<-reader.get(first)
			require.EqualValues(t, 1, reader.by[0].Stats().Mirrored)
			<-writer.put(first, second)
			<-hold.held
			time.Sleep(300 * time.Millisecond) // what is known of the mirror is too old by then
			<-reader.get(first)
			<-reader.get(second)
			mirrored := reader.by[0].Stats().Mirrored
			release()
			m.caughtUp()
			<-reader.get(first)
			<-reader.get(second)
			require.NoError(t, all.check(t, h))
			require.EqualValues(t, 1, mirrored)
		})
	}
}

// stopped waits until a process is stopped.
func (m *mirrorTest) stopped(p *exec.Cmd) {
	m.Helper()
	require.Eventually(m, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
		require.NoError(m, err)
		_, state, _ := strings.Cut(string(stat), ") ")
		return strings.HasPrefix(state, "T")
	}, time.Minute, 5*time.Millisecond)
}

// work runs an executor in this process, whose calls of the target an interceptor sees. It is elected
// when the lease of the one before has ended.
func (m *mirrorTest) work(calls interface {
	call(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error
}, config ...func(*mirrorworker.Config)) (end func()) {
	target, err := clientv3.New(clientv3.Config{
		Endpoints: m.servers[1], DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(calls.call)}, Logger: zap.NewNop(),
	})
	require.NoError(m, err)
	ctx, cancel := context.WithCancel(m.Context())
	cfg := mirrorworker.Config{Home: m.home, Target: target, Keys: mirrored.Mirrored{Prefix: m.prefix}, TTL: executorLease}
	for _, change := range config {
		change(&cfg)
	}
	ended := make(chan error, 1)
	go func() { ended <- mirrorworker.Run(ctx, cfg) }()
	return func() {
		cancel()
		require.NoError(m, <-ended)
		target.Close()
	}
}

// writes reports a transaction that puts a key.
func writes(request any, key string) bool {
	txn, ok := request.(*pb.TxnRequest)
	return ok && slices.ContainsFunc(txn.Success, func(op *pb.RequestOp) bool { return string(op.GetRequestPut().GetKey()) == key })
}

// holding holds transactions that put a key.
type holding struct {
	key           string
	first         sync.Once
	held, release chan struct{}
}

func (h *holding) call(ctx context.Context, method string, request, answer any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if writes(request, h.key) {
		h.first.Do(func() { close(h.held) })
		<-h.release
	}
	return invoke(ctx, method, request, answer, cc, opts...)
}

// mirrorStopVar names the key before whose first change a process of an executor stops itself.
const mirrorStopVar = "STOA_MIRROR_STOP"

// stopping stops this process before a transaction that puts a key, and again behind it. The transaction
// is on its way, though its caller doesn't wait any more.
func stopping(key string) grpc.DialOption {
	var once sync.Once
	stop := func() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		time.Sleep(20 * time.Millisecond) // other threads are stopped a moment later
	}
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, answer any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if key != "" && writes(request, key) {
			once.Do(stop)
			ctx = context.WithoutCancel(ctx)
			defer stop()
		}
		return invoke(ctx, method, request, answer, cc, opts...)
	})
}
