package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/transport"
)

// cluster is a number of nodes in this process, over real files and sockets.
type cluster struct {
	t       testing.TB
	configs []Config
	nodes   []*Node
	servers []*grpc.Server
	addrs   []string
	held    map[string]net.Listener // of nodes that weren't started yet

	repeated atomic.Int64 // puts
}

func newCluster(t testing.TB, size, partitions int, set ...func(*Config)) *cluster {
	c := &cluster{t: t, nodes: make([]*Node, size), servers: make([]*grpc.Server, size), held: map[string]net.Listener{}}
	var members []*pb.Member
	for i := range size {
		c.addrs = append(c.addrs, c.address())
		members = append(members, &pb.Member{
			ID: uint64(i + 1), Name: fmt.Sprintf("n%d", i), PeerURLs: []string{"http://" + c.addrs[i]},
		})
	}
	for i := range size {
		c.configs = append(c.configs, Config{
			ID: uint64(i + 1), ClusterID: 77, Members: members, DataDir: t.TempDir(),
			Partitions: partitions, Tick: 50 * time.Millisecond, Election: time.Second,
			SegmentBytes: 1 << 20,
			Logger:       zaptest.NewLogger(t).Named(members[i].Name),
			Fatal:        func(err error) { panic(err) },
		})
		for _, change := range set {
			change(&c.configs[i])
		}
		c.start(i)
	}
	t.Cleanup(func() {
		for i := range c.nodes {
			c.stop(i)
		}
	})
	// The first election needs no timeout: one server campaigns at once, as after a change of the number of partitions.
	c.nodes[rand.IntN(size)].current().replica.Start(true)
	return c
}

// shortLog makes followers that lag need a snapshot soon.
func shortLog(c *Config) { c.CatchUpEntries = 10 }

func (c *cluster) start(i int) {
	n, err := Start(c.configs[i])
	require.NoError(c.t, err)
	c.nodes[i] = n
	c.serve(i)
}

// address is one for a node. It lies below the range from which the kernel takes ports for
// connections, so that it is free when the node is started again, and is listened to from now on.
func (c *cluster) address() string {
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 21_000+rand.IntN(11_000)))
		if err == nil {
			addr := l.Addr().String()
			c.held[addr] = l
			c.t.Cleanup(func() { l.Close() })
			return addr
		}
	}
	c.t.Fatal("there is no free port")
	return ""
}

// serve opens the peer port.
func (c *cluster) serve(i int) {
	l := c.held[c.addrs[i]]
	delete(c.held, c.addrs[i])
	if l == nil {
		var err error
		l, err = net.Listen("tcp", c.addrs[i])
		require.NoError(c.t, err)
	}
	s := grpc.NewServer(transport.ServerOptions()...)
	c.nodes[i].OpenDoor(transport.NewDoor(s, nil)) // nobody introduces itself
	go func() { _ = s.Serve(l) }()
	c.servers[i] = s
}

func (c *cluster) stop(i int) {
	if c.nodes[i] == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	require.NoError(c.t, c.nodes[i].Stop(ctx))
	c.servers[i].Stop()
	c.nodes[i] = nil
}

func (c *cluster) ready() {
	for i, n := range c.nodes {
		if n == nil {
			continue
		}
		select {
		case <-n.Ready():
		case <-time.After(time.Minute):
			c.t.Fatalf("node %d is not ready", i)
		}
	}
}

func (c *cluster) put(i int, key, value string) int64 {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		resp, err := c.nodes[i].Put(ctx, &pb.PutRequest{Key: []byte(key), Value: []byte(value)})
		if err != nil && fault.Passing(err) && ctx.Err() == nil {
			// On a busy machine a leader may change at any time, or a link be lost. The put may
			// have taken effect, or may later; a test that counts revisions looks at repeated.
			c.repeated.Add(1)
			continue
		}
		require.NoError(c.t, err)
		return resp.Header.Revision
	}
}

func (c *cluster) get(i int, key, end string) *pb.RangeResponse {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		resp, err := c.nodes[i].Range(ctx, &pb.RangeRequest{Key: []byte(key), RangeEnd: []byte(end)})
		if err != nil && fault.Passing(err) && ctx.Err() == nil {
			continue // as above
		}
		require.NoError(c.t, err)
		return resp.Message()
	}
}

// txn makes a transaction that may be made twice, as put does.
func (c *cluster) txn(i int, r *pb.TxnRequest) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		_, err := c.nodes[i].Txn(ctx, r)
		if err == nil || !fault.Passing(err) || ctx.Err() != nil {
			require.NoError(c.t, err)
			return
		}
	}
}

func TestWriteReadRestart(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 3} {
		for _, partitions := range []int{1, 2, 4} {
			t.Run(fmt.Sprintf("servers=%d/partitions=%d", size, partitions), func(t *testing.T) {
				c := newCluster(t, size, partitions)
				c.ready()
				require.EqualValues(t, 1, c.get(0, "x", "").Header.Revision)
				exactly := func(want, got int64, what string) {
					if c.repeated.Load() > 0 { // what was tried first takes effect at any time, or never
						require.LessOrEqual(t, want, got, what)
						return
					}
					require.Equal(t, want, got, what)
				}
				last := int64(1)
				for i := range 50 {
					rev := c.put(i%size, fmt.Sprintf("k%d", i), fmt.Sprint(i))
					exactly(last+1, rev, "revisions of a lone client have no holes")
					last = rev
					got := c.get((i+1)%size, fmt.Sprintf("k%d", i), "")
					require.Len(t, got.Kvs, 1)
					exactly(rev, got.Header.Revision, "of a read")
				}
				all := c.get(0, "k", "l")
				require.Len(t, all.Kvs, 50)
				exactly(last, all.Header.Revision, "of the last read")
				for i := range size {
					c.stop(i)
				}
				for i := range size {
					c.start(i)
				}
				c.ready()
				all = c.get(size-1, "k", "l")
				require.Len(t, all.Kvs, 50)
				exactly(last, all.Header.Revision, "after a restart")
				require.Greater(t, c.put(0, "again", ""), last)
			})
		}
	}
}

// The number of partitions is that of the file, whatever is said.
func TestRestartTakesThePartitionsOfItsFile(t *testing.T) {
	c := newCluster(t, 1, 3)
	c.ready()
	c.put(0, "k", "v")
	c.stop(0)
	c.configs[0].Partitions = 2
	c.start(0)
	c.ready()
	require.Len(t, c.nodes[0].core.Load().stores, 3)
	require.Len(t, c.get(0, "k", "").Kvs, 1)
}
