package node

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/session"
)

// enforced enables authentication, and sets a quota.
func (c *cluster) enforced(q *stoapb.QuotaChange) {
	c.ready()
	c.addRoot()
	c.enable(0)
	require.NoError(c.t, c.nodes[0].QuotaChange(asServer(c.t.Context()), q))
	for _, n := range c.nodes {
		require.Eventually(c.t, func() bool { return len(n.QuotasUsed()) == 1 }, time.Minute, 10*time.Millisecond)
	}
}

// decided repeats a request until it has taken effect or a quota has refused it: a machine with
// too much to do loses its leader at times.
func (c *cluster) decided(do func() error) (err error) {
	require.Eventually(c.t, func() bool {
		err = do()
		return err == nil || errors.Is(err, fault.QuotaExceeded)
	}, 2*time.Minute, time.Millisecond)
	return err
}

// Attempts beyond a limit don't fill the logs, and as soon as there is room, by whichever
// server, the next one succeeds.
func TestAttemptsAtTheLimit(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 2} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			c := newCluster(t, 3, partitions)
			c.enforced(&stoapb.QuotaChange{Prefix: []byte("/t/"), MaxKeys: 2})
			ctx := asServer(t.Context())
			put := func(i int, key string) error {
				return c.decided(func() error {
					_, err := c.nodes[i%3].Put(ctx, &pb.PutRequest{Key: []byte(key), Value: []byte("v")})
					return err
				})
			}
			require.NoError(t, put(0, "/t/a/0"))
			require.NoError(t, put(0, "/t/b/0"))
			logged := func() (entries uint64) {
				for p := range partitions {
					_, applied := c.nodes[0].current().replica.Progress(p)
					entries += applied
				}
				return entries
			}
			before := logged()
			for i := range 60 {
				require.ErrorIs(t, put(i, fmt.Sprintf("/t/%d/k", i)), fault.QuotaExceeded)
			}
			require.Less(t, logged()-before, uint64(30), "entries of the log")
			for i := range 10 {
				require.NoError(t, c.decided(func() error {
					_, err := c.nodes[i%3].DeleteRange(ctx, &pb.DeleteRangeRequest{Key: fmt.Appendf(nil, "/t/a/%d", i)})
					return err
				}))
				require.NoError(t, put(i+1+i%2, fmt.Sprintf("/t/a/%d", i+1)), "there is room")
				require.ErrorIs(t, put(i, "/t/c"), fault.QuotaExceeded)
			}
		})
	}
}

// Calls of an extension by reads, read-only transactions and watches have the whole quota, as those by writes
// have: what its partition was granted of it is not all that is left.
func TestCallsHaveTheWholeQuota(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	c.enforced(&stoapb.QuotaChange{Prefix: []byte("/t/"), MaxKeys: 6})
	ctx, n, key := asServer(t.Context()), c.nodes[0], []byte("/call")
	_, err := n.Put(ctx, &pb.PutRequest{Key: []byte("/em/writes"), Value: []byte(`
		local function write() put("/t/" .. revision(), "1") return 1 end
		return {
			scope = { "/t/" },
			operations = { { op = "put", key = "/call" }, { op = "read", key = "/call" }, { op = "txn", key = "/call" }, { op = "block", key = "/call" } },
			put = write, read = write, txn = write, block = write,
		}`)})
	require.NoError(t, err)

	s := newSessionClient(c, 0)
	s.sink = &testSink{s: s}
	h, opened, err := n.OpenSession(ctx, &stoapb.OpenSession{Ttl: 60}, nil, s.sink)
	require.NoError(t, err)
	s.id, s.handle = opened.Session, h
	h.Start()
	defer h.Close()

	read := &pb.RangeRequest{Key: key}
	for what, call := range map[string]func() error{
		"put": func() error {
			_, err := n.Put(ctx, &pb.PutRequest{Key: key})
			return err
		},
		"read": func() error {
			_, err := n.Range(ctx, read)
			return err
		},
		"transaction": func() error {
			_, err := n.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: read}}}})
			return err
		},
		"watch": func() error {
			_, _, err := n.OpenWatch(ctx, &pb.WatchCreateRequest{Key: key})
			return err
		},
		"read of a session": func() error {
			s.send(func(it *session.Item) {
				it.Kind, it.Key, it.Level, it.Body = stoapb.Kind_RANGE, key, stoapb.Level_STRICT, mustMarshal(read)
			})
			s.waitForReplies(0)
			return s.replies[len(s.replies)-1].err
		},
	} {
		_, err := n.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte("/t/"), RangeEnd: []byte("/t0")})
		require.NoError(t, err)
		for i := range 6 {
			require.NoError(t, c.decided(call), "%s %d", what, i)
		}
		require.ErrorIs(t, c.decided(call), fault.QuotaExceeded, what)
	}
}
