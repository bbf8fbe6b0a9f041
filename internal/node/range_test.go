package node

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A range of which no extension handles the whole is read on as it was begun, also where what is left is
// within what an extension subscribes to.
func TestARangeIsReadOnAsItWasBegun(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.ready()
	c.put(0, "/q/1", "v")
	c.put(0, "/em/answers", `return {
		scope = { "/calls" },
		operations = { { op = "read", prefix = "/q/" } },
		read = function() put("/calls", "1") return "answer" end,
	}`)
	n := c.nodes[0]
	for _, serializable := range []bool{false, true} {
		r := &pb.RangeRequest{Key: []byte("/q/0"), RangeEnd: []byte("/q0"), Serializable: serializable}
		resp, err := n.RangeOn(t.Context(), r)
		require.NoError(t, err)
		require.Len(t, resp.Kvs, 1)
		require.Equal(t, "v", string(resp.Kvs[0].Value()))
		require.Empty(t, c.get(0, "/calls", "").Kvs)
	}
	_, err := n.Range(t.Context(), &pb.RangeRequest{Key: []byte("/q/0"), RangeEnd: []byte("/q0")})
	require.NoError(t, err)
	require.Len(t, c.get(0, "/calls", "").Kvs, 1)
}
