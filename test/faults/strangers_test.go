//go:build faults

package faults

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"

	"github.com/stoa-kv/stoa/test/process"
)

// A server of another cluster that takes a member's peer address is refused and exits with
// an error, and the cluster keeps serving.
func TestPeerOfAnotherCluster(t *testing.T) {
	requireStoa(t)
	c := process.StartT(t, process.Spec{Nodes: 3, Partitions: 2})
	_, err := fill(t, c.Servers[0], 0, 20, 0)
	require.NoError(t, err)
	require.NoError(t, c.Servers[2].Kill())

	// It takes the third one's place and addresses, but was started with another token.
	home := c.Servers[2].DataDir
	require.NoError(t, os.Rename(home, home+".away"))
	requireRefuses(t, c.Servers[2].With("--initial-cluster-token=another"), "is of another cluster", "--initial-cluster-token")
	// The one that was killed may have been the leader.
	require.NoError(t, firstPut(t.Context(), c.Servers[0].ClientURL))
	_, err = fill(t, c.Servers[0], 20, 20, 0)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(home))
	require.NoError(t, os.Rename(home+".away", home))
	require.NoError(t, c.Restart(t.Context(), c.Servers[2]))
	requireAll(t, c.Servers[2], 40)
}

// The same name, hence the same id, a second time.
func TestTwoServersWithOneData(t *testing.T) {
	c := process.StartT(t, process.Spec{})
	s := c.Servers[0]
	plan := process.NewT(t, process.Spec{})
	twin := s.With("--listen-client-urls="+plan.Servers[0].ClientURL, "--advertise-client-urls="+plan.Servers[0].ClientURL,
		"--listen-peer-urls="+plan.Servers[0].PeerURL)
	require.NoError(t, twin.Start())
	t.Cleanup(func() { twin.Kill() })
	require.Error(t, twin.WaitReady(contextFor(t, 3*time.Second)), "two servers must not have one data directory")
	_, err := fill(t, s, 0, 10, 0)
	require.NoError(t, err)
}

// Bytes that are no message end neither the server nor the connection.
func TestMalformedRequests(t *testing.T) {
	c := process.StartT(t, process.Spec{Partitions: 2})
	s := c.Servers[0]
	conn, err := grpc.NewClient(strings.TrimPrefix(s.ClientURL, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	for _, method := range []string{"KV/Range", "KV/Put", "KV/DeleteRange", "KV/Txn", "KV/Compact", "Lease/LeaseGrant", "Lease/LeaseRevoke",
		"Lease/LeaseTimeToLive", "Maintenance/Status", "Maintenance/HashKV", "Maintenance/Alarm", "Cluster/MemberList", "Auth/AuthStatus"} {
		for _, junk := range []string{"\xff\xff\xff\xff", "\x0a\xff\x01short", "\x0a", strings.Repeat("\x1a\x80\x80\x04", 1000)} {
			err := conn.Invoke(t.Context(), "/etcdserverpb."+method, []byte(junk), new([]byte), grpc.ForceCodec(junkCodec{}))
			require.Error(t, err, "%s %q", method, junk)
		}
	}
	// A transaction that is nested too deeply is refused, without exhausting
	// the stack.
	deep := &pb.TxnRequest{}
	for range 3000 {
		deep = &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: deep}}}}
	}
	_, err = pb.NewKVClient(conn).Txn(t.Context(), deep)
	require.Error(t, err)
	require.True(t, s.Running(), s.LogTail(2000))
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{s.ClientURL}, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer cli.Close()
	_, err = cli.Put(t.Context(), "/still/here", "v")
	require.NoError(t, err)
}

type junkCodec struct{}

var _ encoding.Codec = junkCodec{}

func (junkCodec) Name() string                       { return "proto" }
func (junkCodec) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (junkCodec) Unmarshal(data []byte, v any) error { return nil }
