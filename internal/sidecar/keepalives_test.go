package sidecar

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// lessor is a member that takes its time for each renewal.
type lessor struct {
	pb.UnimplementedLeaseServer
	renewed atomic.Int64
}

func (m *lessor) LeaseKeepAlive(st pb.Lease_LeaseKeepAliveServer) error {
	for {
		r, err := st.Recv()
		if err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
		m.renewed.Add(1)
		if err := st.Send(&pb.LeaseKeepAliveResponse{Header: &pb.ResponseHeader{}, ID: r.ID, TTL: 60}); err != nil {
			return err
		}
	}
}

// TestManyKeepAlivesOfOneProgram: another program's lease doesn't wait for the renewals of them all.
func TestManyKeepAlivesOfOneProgram(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g, m := grpc.NewServer(), new(lessor)
	pb.RegisterLeaseServer(g, m)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	_, one := start(t, Upstream{Endpoints: []string{l.Addr().String()}})
	other, err := grpc.NewClient(one.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close() })

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	keeps := func(conn *grpc.ClientConn, leases ...int64) pb.Lease_LeaseKeepAliveClient {
		st, err := pb.NewLeaseClient(conn).LeaseKeepAlive(ctx)
		require.NoError(t, err)
		for _, id := range leases {
			require.NoError(t, st.Send(&pb.LeaseKeepAliveRequest{ID: id}))
		}
		return st
	}
	_, err = keeps(other, 1).Recv() // it is connected
	require.NoError(t, err)
	const streams, each = 4, 1000
	next := int64(1000)
	for range streams {
		var leases []int64
		for range each {
			next++
			leases = append(leases, next)
		}
		keeps(one, leases...)
	}
	require.Eventually(t, func() bool { return m.renewed.Load() > keepAliveWays }, 10*time.Second, time.Millisecond)
	before := m.renewed.Load()
	_, err = keeps(other, 1).Recv()
	require.NoError(t, err)
	require.Less(t, m.renewed.Load()-before, int64(200), "of %d", streams*each)
}
