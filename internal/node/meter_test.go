package node

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/script"
)

func TestMeterSaysWhyACallFailed(t *testing.T) {
	out := &extension.Outcome{Usage: script.Usage{Steps: 7}, Writes: make([]extension.Write, 3)}
	require.Equal(t, ExtensionCall{Name: "e", Took: 2 * time.Microsecond, Steps: 7, Writes: 3}, extensionCall("e", 2000, out, nil))
	var failed []string
	for _, err := range []error{fault.ExtensionLimit.With("x"), fault.NoSpace, fault.ExtensionFailed.With("x"), errors.New("x")} {
		c := extensionCall("e", 2000, out, err)
		require.Zero(t, c.Writes)
		failed = append(failed, c.Failed)
	}
	require.Equal(t, []string{"limit", "space", "script", "script"}, failed)
}

func TestExtensionCallsAreObserved(t *testing.T) {
	c := newCluster(t, 1, 2)
	calls := make(chan ExtensionCall, 10)
	c.stop(0)
	c.configs[0].Observe.ExtensionCalled = func(call ExtensionCall) { calls <- call }
	c.start(0)
	c.ready()
	c.put(0, "/em/echo", `return {
  scope = { "/echo/" },
  operations = { { op = "put", prefix = "/echo/" }, { op = "txn", prefix = "/echo/" } },
  put = function(r) put(r.key, r.value) end,
  txn = function(r) put(r.key, "swapped") return false end,
}`)
	require.Equal(t, []ExtensionStanding{{"echo", false}}, c.nodes[0].Extensions())
	_, err := c.nodes[0].Put(t.Context(), &pb.PutRequest{Key: []byte("/echo/a"), Value: []byte("1")})
	require.NoError(t, err)
	call := <-calls
	require.Equal(t, "echo", call.Name)
	require.Equal(t, 1, call.Writes)
	require.Empty(t, call.Failed)
	require.Positive(t, call.Steps)
	// A transaction that writes nothing by itself is handled as well.
	resp, err := c.nodes[0].Txn(t.Context(), &pb.TxnRequest{Success: []*pb.RequestOp{
		{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("/echo/b")}}},
	}})
	require.NoError(t, err)
	require.False(t, resp.GetSucceeded())
	require.Equal(t, "echo", (<-calls).Name)
	require.Equal(t, "swapped", string(c.get(0, "/echo/b", "").Kvs[0].Value))
	c.put(0, "/em/echo/state", "disabled")
	require.Equal(t, []ExtensionStanding{{"echo", true}}, c.nodes[0].Extensions())
}
