package client_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/client"
)

func TestPartitions(t *testing.T) {
	f := newFake(t, 1)
	c := f.client()
	r, err := c.Partitions(testContext(t))
	require.NoError(t, err)
	require.Len(t, r.Partitions, 1)
	require.EqualValues(t, 1, r.Partitions[0].Leader)
}

// TestOf opens a session on an existing etcd client.
func TestOf(t *testing.T) {
	f := newFake(t, 2)
	etcd, err := clientv3.New(clientv3.Config{Endpoints: f.endpoints()})
	require.NoError(t, err)
	c := client.Of(etcd)
	s, err := c.Session(testContext(t))
	require.NoError(t, err)
	_, err = s.Put(testContext(t), "k", "v")
	require.NoError(t, err)
	require.NoError(t, s.Close(testContext(t)))
	require.NoError(t, c.Close())
}

// TestLevels: the levels go over the wire by these numbers.
func TestLevels(t *testing.T) {
	require.EqualValues(t, stoapb.Level_STRICT, client.Strict)
	require.EqualValues(t, stoapb.Level_CAUSAL, client.Causal)
	require.EqualValues(t, stoapb.Level_FAST, client.Fast)
	require.Equal(t, "strict causal fast Level(3)", fmt.Sprint(client.Strict, client.Causal, client.Fast, client.Level(3)))
}
