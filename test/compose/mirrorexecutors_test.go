package compose

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/client/mirror"
	mirrored "github.com/stoa-kv/stoa/client/mirror/cluster"
	mirrorworker "github.com/stoa-kv/stoa/client/mirror/worker"
)

// Executors are processes that are killed with SIGKILL, or stopped for longer than their leases live:
// another one is elected meanwhile, and one that goes on is stale. Whenever it is looked at, the
// target is what home was at the mark's revision, and the mark never goes back.
func TestMirrorExecutors(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	m := newMirrorTest(t, startEach(t, "stoa", "etcd"), 0)
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 20**loadTime)
	defer cancel()
	ended := make(chan struct{})
	var seen atomic.Int64 // the mark's revision
	go func() {
		defer close(ended)
		m.write(ctx, rand.New(rand.NewPCG(seed, 1)), &seen)
	}()
	go m.replaceExecutors(ctx, rand.New(rand.NewPCG(seed, 2)))
	looks, owners := 0, map[string]bool{}
	var last mirror.Mark
	enough := func() bool { // on a busy machine it takes longer until another one is elected
		return time.Since(begun) > 2**loadTime && len(owners) > 1
	}
	for !enough() && sleep(ctx, 5*time.Millisecond) {
		mark, ok := m.compare()
		if !ok {
			continue
		}
		require.GreaterOrEqual(t, mark.Revision, last.Revision, "INCONSISTENT: the mark has gone back, from that of %s to that of %s", last.Owner, mark.Owner)
		looks, last = looks+1, mark
		seen.Store(mark.Revision)
		owners[mark.Owner] = true
	}
	cancel()
	<-ended
	m.follow("in the end")
	t.Logf("%d looks, %d executors elected", looks, len(owners))
	require.Greater(t, looks, 10)
	require.Greater(t, len(owners), 1, "no other executor was elected")
}

// mostBehind is the number of revisions that home may be ahead: what executors that are killed all the time leave
// behind has to be followed in the end, within follow's minute, also where that is slower than writing.
const mostBehind = 500

// write changes keys at home, some revisions more than one transaction of the target can have. It waits only while the
// mark is too far behind.
func (m *mirrorTest) write(ctx context.Context, rnd *rand.Rand, mark *atomic.Int64) {
	for n := 0; ctx.Err() == nil; n++ {
		var ops []clientv3.Op
		for i := range []int{1, 2, 20}[rnd.IntN(3)] {
			key := fmt.Sprintf("%s%d", m.prefix, (n+i)%40)
			if rnd.IntN(3) == 0 {
				ops = append(ops, clientv3.OpDelete(key))
			} else {
				ops = append(ops, clientv3.OpPut(key, fmt.Sprint(n)))
			}
		}
		r, err := m.home.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			if ctx.Err() == nil {
				m.Error(err)
			}
			continue
		}
		for ctx.Err() == nil && r.Header.Revision > mark.Load()+mostBehind {
			sleep(ctx, 5*time.Millisecond)
		}
	}
}

// compare reads keys and mark of the target at one moment, and compares them with home at the
// mark's revision; false if there is none.
func (m *mirrorTest) compare() (mark mirror.Mark, ok bool) {
	m.Helper()
	got, err := m.target.Txn(m.Context()).Then(clientv3.OpGet(m.mark()), clientv3.OpGet(m.prefix, clientv3.WithPrefix())).Commit()
	require.NoError(m, err)
	marks, there := got.Responses[0].GetResponseRange().Kvs, got.Responses[1].GetResponseRange().Kvs
	if len(marks) == 0 {
		return mark, false
	}
	mark, err = mirror.ParseMark(marks[0].Value)
	require.NoError(m, err)
	if mark.Phase != mirror.At {
		return mark, false
	}
	for _, kv := range there {
		require.NoError(m, mirrored.Unstamp(kv))
	}
	want, err := m.home.Get(m.Context(), m.prefix, clientv3.WithPrefix(), clientv3.WithRev(mark.Revision))
	require.NoError(m, err)
	require.Equal(m, fmt.Sprint(want.Kvs), fmt.Sprint(there), "INCONSISTENT: the mirror is not home at revision %d", mark.Revision)
	return mark, true
}

const mirrorExecutorVar = "STOA_MIRROR_EXECUTOR"

// executorLease is the time after which another executor takes over. etcd grants no shorter one.
const executorLease = 2 * time.Second

// replaceExecutors kills and stops three executors until ctx ends.
func (m *mirrorTest) replaceExecutors(ctx context.Context, rnd *rand.Rand) {
	const executors = 3
	var all [executors]*exec.Cmd
	for i := range all {
		all[i] = m.startExecutor()
	}
	for sleep(ctx, time.Duration(100+rnd.IntN(500))*time.Millisecond) {
		i := m.elected(all[:])
		if i < 0 || rnd.IntN(4) == 0 {
			i = rnd.IntN(executors)
		}
		if rnd.IntN(2) == 0 {
			_ = all[i].Process.Kill()
			_ = all[i].Wait()
			all[i] = m.startExecutor()
			continue
		}
		for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
			_ = all[i].Process.Signal(sig)
			if sig == syscall.SIGSTOP {
				sleep(ctx, executorLease*time.Duration(100+rnd.IntN(60))/100)
			}
		}
	}
	for _, e := range all {
		_ = e.Process.Kill()
		_ = e.Wait()
	}
}

// elected is the executor that has written the mark, -1 if it is none of them.
func (m *mirrorTest) elected(all []*exec.Cmd) int {
	got, err := m.target.Get(m.Context(), m.mark())
	if err != nil || len(got.Kvs) == 0 {
		return -1
	}
	return slices.IndexFunc(all, func(e *exec.Cmd) bool {
		return strings.Contains(string(got.Kvs[0].Value), fmt.Sprintf(" pid %d ", e.Process.Pid))
	})
}

func (m *mirrorTest) startExecutor(env ...string) *exec.Cmd {
	where, err := json.Marshal(append([][]string{{m.prefix}}, m.servers[:]...))
	if err != nil {
		m.Error(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestMirrorExecutorRole$", "-test.timeout=1h")
	cmd.Env = append(append(os.Environ(), mirrorExecutorVar+"="+string(where)), env...)
	if err := cmd.Start(); err != nil {
		m.Error(err)
	}
	return cmd
}

// TestMirrorExecutorRole is a process of TestMirrorExecutors and TestMirrorStaleExecutor.
func TestMirrorExecutorRole(t *testing.T) {
	var where [][]string
	if err := json.Unmarshal([]byte(os.Getenv(mirrorExecutorVar)), &where); err != nil {
		t.Skip("a process of TestMirrorExecutors")
	}
	var clients [2]*clientv3.Client
	for i, endpoints := range where[1:] {
		var err error
		clients[i], err = clientv3.New(clientv3.Config{Endpoints: endpoints, DialOptions: []grpc.DialOption{stopping(os.Getenv(mirrorStopVar))}})
		require.NoError(t, err)
	}
	require.NoError(t, mirrorworker.Run(t.Context(), mirrorworker.Config{
		Home: clients[0], Target: clients[1], Keys: mirrored.Mirrored{Prefix: where[0][0]}, MaxTxnOps: 10, TTL: executorLease,
	}))
}
