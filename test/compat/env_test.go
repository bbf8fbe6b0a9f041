package compat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
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
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/test/process"
)

// shape is one configuration of the matrix.
type shape struct{ nodes, parts int }

func (s shape) String() string { return fmt.Sprintf("%dx%d", s.nodes, s.parts) }

// env is what a test works with: a running cluster and a corner of its key space.
type env struct {
	*process.Cluster
	shape
	t   *testing.T
	ctx context.Context
	cli *clientv3.Client
	// conn reaches the first server without the client's own checks and retries.
	conn  *grpc.ClientConn
	kv    pb.KVClient
	lease pb.LeaseClient
	root  string // ends in a slash; no other test writes below it
}

// shared holds the cluster of each shape while the package's tests run.
var shared struct {
	sync.Mutex
	clusters map[shape]*process.Cluster
	tests    atomic.Int64
}

func TestMain(m *testing.M) {
	code := m.Run()
	for s, c := range shared.clusters {
		c.Close()
		if code != 0 {
			fmt.Fprintf(os.Stderr, "data and logs of the shared cluster %v: %s\n", s, c.Spec.Dir)
			continue
		}
		os.RemoveAll(c.Spec.Dir)
	}
	os.Exit(code)
}

// matrix runs a test on the shared cluster of each shape.
func matrix(t *testing.T, test func(t *testing.T, e *env)) {
	t.Helper()
	for _, s := range shapes(t) {
		t.Run(s.String(), func(t *testing.T) {
			test(t, newEnv(t, s, sharedCluster(t, s)))
		})
	}
}

// waiting is matrix for a test that mostly waits. It must tolerate other tests
// in the same cluster below other roots.
func waiting(t *testing.T, test func(t *testing.T, e *env)) {
	t.Helper()
	t.Parallel()
	for _, s := range shapes(t) {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			test(t, newEnv(t, s, sharedCluster(t, s)))
		})
	}
}

// own runs a test on a cluster of its own for each shape that has so many
// servers. Such tests run in parallel, a few at a time, after all others.
func own(t *testing.T, nodes int, args []string, test func(t *testing.T, e *env)) {
	t.Helper()
	t.Parallel()
	for _, s := range shapes(t) {
		if s.nodes < nodes {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			c := process.StartT(t, process.Spec{Nodes: s.nodes, Partitions: s.parts, Args: args})
			test(t, newEnv(t, s, c))
		})
	}
}

func shapes(t *testing.T) []shape {
	t.Helper()
	bin, err := process.UnderTest()
	require.NoError(t, err)
	all := []shape{{1, 1}, {1, 2}, {1, 4}, {3, 1}, {3, 2}, {3, 4}}
	switch {
	case !bin.Stoa:
		all = []shape{{1, 1}, {3, 1}}
	case testing.Short():
		all = []shape{{1, 1}, {3, 2}}
	}
	asked := os.Getenv("STOA_COMPAT_MATRIX")
	if asked == "" {
		return all
	}
	var out []shape
	for _, f := range strings.Split(asked, ",") {
		var s shape
		_, err := fmt.Sscanf(f, "%dx%d", &s.nodes, &s.parts)
		require.NoError(t, err, "STOA_COMPAT_MATRIX: %q is not servers x partitions", f)
		out = append(out, s)
	}
	return out
}

func sharedCluster(t *testing.T, s shape) *process.Cluster {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if c := shared.clusters[s]; c != nil {
		for _, srv := range c.Servers {
			require.True(t, srv.Running(), "%s of the shared cluster has ended:\n%s", srv.Name, srv.LogTail(3000))
		}
		return c
	}
	bin, err := process.UnderTest()
	require.NoError(t, err)
	dir, err := process.TempDir("compat-" + s.String())
	require.NoError(t, err)
	c, err := process.Start(context.Background(), process.Spec{Binary: bin, Nodes: s.nodes, Partitions: s.parts, Dir: dir})
	require.NoError(t, err)
	if shared.clusters == nil {
		shared.clusters = map[shape]*process.Cluster{}
	}
	shared.clusters[s] = c
	return c
}

func newEnv(t *testing.T, s shape, c *process.Cluster) *env {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	e := &env{Cluster: c, shape: s, t: t, ctx: ctx, root: fmt.Sprintf("/t%d/", shared.tests.Add(1))}
	e.cli = e.client(c.Endpoints()...)
	e.conn = e.dial(0)
	e.kv, e.lease = pb.NewKVClient(e.conn), pb.NewLeaseClient(e.conn)
	return e
}

// client makes an etcd client that ends with the test.
func (e *env) client(endpoints ...string) *clientv3.Client {
	e.t.Helper()
	return e.named("", endpoints...)
}

// named is client with a name by which extensions know it.
func (e *env) named(id string, endpoints ...string) *clientv3.Client {
	e.t.Helper()
	cli, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, DialTimeout: 10 * time.Second, Logger: zap.NewNop(), DialOptions: client.Identify(id),
	})
	require.NoError(e.t, err)
	e.t.Cleanup(func() { cli.Close() })
	return cli
}

// dial connects to server i, with room for messages of any size.
func (e *env) dial(i int) *grpc.ClientConn {
	e.t.Helper()
	conn, err := grpc.NewClient(strings.TrimPrefix(e.Servers[i].ClientURL, "http://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30)))
	require.NoError(e.t, err)
	e.t.Cleanup(func() { conn.Close() })
	return conn
}

// key names the i-th key of a directory: e.key("a", 3) and e.key("b", 3) lie in
// different directories, and so, as a rule, in different partitions.
func (e *env) key(dir string, i int) string { return fmt.Sprintf("%s%s/%03d", e.root, dir, i) }

// dirs are enough directories that each partition gets some.
var dirs = []string{"a", "b", "c", "d", "e", "f", "g", "h"}

// fill puts n keys into each directory, round about, and returns the revisions in
// the order of the writes together with the keys.
func (e *env) fill(n int) (keys []string, revs []int64) {
	e.t.Helper()
	for i := range n {
		for _, d := range dirs {
			k := e.key(d, i)
			keys, revs = append(keys, k), append(revs, e.put(k, "v"+k))
		}
	}
	return keys, revs
}

func (e *env) put(key, value string) (rev int64) {
	e.t.Helper()
	resp, err := e.cli.Put(e.ctx, key, value)
	require.NoError(e.t, err)
	return resp.Header.Revision
}

func (e *env) get(key string, opts ...clientv3.OpOption) *clientv3.GetResponse {
	e.t.Helper()
	resp, err := e.cli.Get(e.ctx, key, opts...)
	require.NoError(e.t, err)
	return resp
}

// all is the range of everything that this test owns.
func (e *env) all() (start string, end clientv3.OpOption) {
	return e.root, clientv3.WithRange(clientv3.GetPrefixRangeEnd(e.root))
}

func keysOf(resp *clientv3.GetResponse) []string {
	keys := make([]string, 0, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

// wantError asks for one of rpctypes' errors, code and text, whether it comes from
// a bare stub or from etcd's client, which has its own type for it.
func wantError(t *testing.T, want, got error) {
	t.Helper()
	require.Error(t, got)
	require.Equal(t, describe(want), describe(got))
}

func describe(err error) string {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return fmt.Sprintf("%v: %s", e.Code(), e.Error())
	}
	s := status.Convert(err)
	return fmt.Sprintf("%v: %s", s.Code(), s.Message())
}

// leader is the index of the server that leads.
func (e *env) leader() int {
	e.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		for i, s := range e.Servers {
			if !s.Running() {
				continue
			}
			st, err := e.cli.Status(e.ctx, s.ClientURL)
			if err == nil && st.Leader != 0 && st.Leader == st.Header.MemberId {
				return i
			}
		}
	}
	require.FailNow(e.t, "no leader")
	return 0
}

// lockedBuffer takes the output of a process while a test looks at it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
