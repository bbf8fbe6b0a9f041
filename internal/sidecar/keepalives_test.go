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
	revokes int64 // leases with IDs up to this one are being revoked, which takes long: their renewals wait
	held    atomic.Int64
}

func (m *lessor) LeaseKeepAlive(st pb.Lease_LeaseKeepAliveServer) error {
	for {
		r, err := st.Recv()
		if err != nil {
			return err
		}
		if r.ID <= m.revokes {
			m.held.Add(1)
			<-st.Context().Done()
		}
		time.Sleep(time.Millisecond)
		m.renewed.Add(1)
		if err := st.Send(&pb.LeaseKeepAliveResponse{Header: &pb.ResponseHeader{}, ID: r.ID, TTL: 60}); err != nil {
			return err
		}
	}
}

// behind is a sidecar of the member, and a connection to it.
func (m *lessor) behind(t *testing.T) (*Server, *grpc.ClientConn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := grpc.NewServer()
	pb.RegisterLeaseServer(g, m)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	return start(t, Upstream{Endpoints: []string{l.Addr().String()}})
}

// TestKeepAlivesThatWait: a lease whose renewal is answered at once doesn't wait for those of leases that are being revoked: more than there are
// streams, or as many, which have them all to themselves until it comes.
func TestKeepAlivesThatWait(t *testing.T) {
	for _, revokes := range []int64{5 * keepAliveWays, keepAliveWays} {
		m := &lessor{revokes: revokes}
		_, conn := m.behind(t)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		keeps := func(id int64) pb.Lease_LeaseKeepAliveClient {
			st, err := pb.NewLeaseClient(conn).LeaseKeepAlive(ctx)
			require.NoError(t, err)
			require.NoError(t, st.Send(&pb.LeaseKeepAliveRequest{ID: id}))
			return st
		}
		const other = 1000
		_, err := keeps(other).Recv() // it is connected
		require.NoError(t, err)
		began := time.Now()
		for id := range revokes {
			keeps(id + 1)
		}
		if revokes == keepAliveWays {
			require.Eventually(t, func() bool { return m.held.Load() == revokes }, renewalTimeout/2, time.Millisecond)
			time.Sleep(5 * slowRenewal)
		}
		_, err = keeps(other).Recv()
		require.NoError(t, err)
		require.Less(t, time.Since(began), renewalTimeout)
	}
}

// TestManyKeepAlivesOfOneProgram: another program's lease doesn't wait for the renewals of them all.
func TestManyKeepAlivesOfOneProgram(t *testing.T) {
	m := new(lessor)
	s, one := m.behind(t)
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
	var waiting int64
	require.Eventually(t, func() bool { // all of them have come
		waiting = int64(s.renewing[0].stats().Leases)
		return waiting+m.renewed.Load() >= streams*each
	}, 10*time.Second, time.Millisecond)
	before := m.renewed.Load()
	_, err = keeps(other, 1).Recv()
	require.NoError(t, err)
	// Some hundreds are renewed in the time that a busy machine takes for a new stream: one takes a millisecond, and up to 64 are under way.
	require.Less(t, m.renewed.Load()-before, waiting/2, "of %d", waiting)
}
