package rpc

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/lockpb"
	"github.com/stoa-kv/stoa/internal/version"
)

func requireHeader(t *testing.T, h *pb.ResponseHeader, rev int64) {
	t.Helper()
	require.EqualValues(t, fakeCluster, h.ClusterId)
	require.EqualValues(t, fakeMember, h.MemberId)
	require.EqualValues(t, fakeTerm, h.RaftTerm)
	require.Equal(t, rev, h.Revision)
}

func TestKV(t *testing.T) {
	n, c := client(t, Options{})
	ctx := testContext(t)
	p, err := c.Put(ctx, "a", "1")
	require.NoError(t, err)
	requireHeader(t, p.Header, 2)
	g, err := c.Get(ctx, "a")
	require.NoError(t, err)
	requireHeader(t, g.Header, 2)
	require.Equal(t, "1", string(g.Kvs[0].Value))
	d, err := c.Delete(ctx, "a", clientv3.WithPrefix())
	require.NoError(t, err)
	requireHeader(t, d.Header, 2)
	x, err := c.Txn(ctx).Then(clientv3.OpPut("a", "1"), clientv3.OpPut("b", "1")).Commit()
	require.NoError(t, err)
	requireHeader(t, x.Header, 2)
	k, err := c.Compact(ctx, 2, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	requireHeader(t, k.Header, 2)
	require.True(t, n.last().(*pb.CompactionRequest).Physical)
}

func TestEveryFaultHasEtcdsStatus(t *testing.T) {
	for code := uint32(1); code < fault.Internal.Code(); code++ {
		f := fault.FromCode(code)
		require.Contains(t, statuses, f, f.Error())
		require.Equal(t, statuses[f], toStatus(fmt.Errorf("apply: %w", f)))
	}
	require.Equal(t, codes.Internal, status.Code(toStatus(fault.Internal)))
	require.Equal(t, context.Canceled, toStatus(fmt.Errorf("wait: %w", context.Canceled)))
	require.NoError(t, toStatus(nil))
	own := status.Error(codes.Aborted, "x")
	require.Equal(t, own, toStatus(own))
}

func TestFaultsReachClients(t *testing.T) {
	n, c := client(t, Options{})
	ctx := testContext(t)
	n.fail(fmt.Errorf("apply put: %w", fault.NoSpace))
	_, err := c.Put(ctx, "a", "1")
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	n.fail(fault.Compacted)
	_, err = c.Get(ctx, "a", clientv3.WithRev(1), clientv3.WithSerializable())
	require.ErrorIs(t, err, rpctypes.ErrCompacted)
	n.fail(fault.LeaseTTLTooLarge)
	_, err = c.Grant(ctx, 5)
	require.ErrorIs(t, err, rpctypes.ErrLeaseTTLTooLarge)
	n.fail(fault.MemberNotFound)
	_, err = c.MoveLeader(ctx, 9)
	require.ErrorIs(t, err, rpctypes.ErrMemberNotFound)
}

func TestRangeStream(t *testing.T) {
	n, conn := serve(t, Options{MaxRequestBytes: 4000})
	testRangeStream(t, n, conn)
}

// A snapshot takes the server back after the first chunk: the others are linearizable reads.
func TestRangeStreamOfAServerThatIsTakenBack(t *testing.T) {
	n, conn := serve(t, Options{MaxRequestBytes: 4000})
	n.shows.Store(1)
	testRangeStream(t, n, conn)
}

// A server is found to differ between two chunks, and has taken in another's state: the rest isn't of what the first was of.
func TestRangeStreamOfAServerThatWasFenced(t *testing.T) {
	n, conn := serve(t, Options{MaxRequestBytes: 4000})
	ctx := testContext(t)
	for i := range 3000 { // more than waits on the way
		_, err := n.Put(ctx, &pb.PutRequest{Key: fmt.Appendf(nil, "k%04d", i), Value: make([]byte, 100)})
		require.NoError(t, err)
	}
	stream, err := pb.NewKVClient(conn).RangeStream(ctx, &pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l")})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	n.fences.Add(1)
	for err == nil {
		_, err = stream.Recv()
	}
	require.ErrorContains(t, err, fault.Fenced.Error())
}

func testRangeStream(t *testing.T, n *fakeNode, conn *grpc.ClientConn) {
	ctx := testContext(t)
	for i := range 300 {
		_, err := n.Put(ctx, &pb.PutRequest{Key: fmt.Appendf(nil, "k%03d", i), Value: make([]byte, 100)})
		require.NoError(t, err)
	}
	kv := pb.NewKVClient(conn)
	for _, r := range []*pb.RangeRequest{
		{Key: []byte("k"), RangeEnd: []byte("l")},
		{Key: []byte("k"), RangeEnd: []byte("l"), Limit: 5},
		{Key: []byte("k"), RangeEnd: []byte("l"), Limit: 10},
		{Key: []byte("k"), RangeEnd: []byte("l"), Limit: 299},
		{Key: []byte("k"), RangeEnd: []byte("l"), Limit: 300},
		{Key: []byte("k"), RangeEnd: []byte{0}, CountOnly: true},
		{Key: []byte("k"), RangeEnd: []byte("l"), Revision: 100},
		{Key: []byte("nothing")},
		{Key: []byte("k007")},
	} {
		want, err := kv.Range(ctx, r)
		require.NoError(t, err)
		before := n.ranges.Load()
		stream, err := kv.RangeStream(ctx, r)
		require.NoError(t, err)
		got, chunks := &pb.RangeResponse{}, 0
		for {
			resp, err := stream.Recv()
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			require.LessOrEqual(t, proto.Size(resp), 2*4000+1000)
			proto.Merge(got, resp.RangeResponse)
			chunks++
		}
		require.True(t, proto.Equal(want, got), "%v", r)
		require.EqualValues(t, 1, n.ranges.Load()-before, "all chunks are one request")
		if len(want.Kvs) > 10 {
			require.Greater(t, chunks, 2)
		}
	}
	for _, bad := range []*pb.RangeRequest{
		{Key: []byte("k"), SortOrder: pb.RangeRequest_DESCEND},
		{Key: []byte("k"), MinModRevision: 3},
	} {
		stream, err := kv.RangeStream(ctx, bad)
		require.NoError(t, err)
		_, err = stream.Recv()
		require.Equal(t, codes.Unimplemented, status.Code(err))
	}
}

func TestLease(t *testing.T) {
	n, c := client(t, Options{})
	ctx := testContext(t)
	g, err := c.Grant(ctx, 50)
	require.NoError(t, err)
	requireHeader(t, g.ResponseHeader, 1)
	n.mu.Lock()
	n.leases[7] = 60
	n.mu.Unlock()
	k, err := c.KeepAliveOnce(ctx, 7)
	require.NoError(t, err)
	require.EqualValues(t, 60, k.TTL)
	requireHeader(t, k.ResponseHeader, 1)
	_, err = c.KeepAliveOnce(ctx, 8)
	require.ErrorIs(t, err, rpctypes.ErrLeaseNotFound)
	ttl, err := c.TimeToLive(ctx, 8)
	require.NoError(t, err)
	require.EqualValues(t, -1, ttl.TTL)
	ls, err := c.Leases(ctx)
	require.NoError(t, err)
	require.Len(t, ls.Leases, 1)
	ls, err = c.Leases(metadata.AppendToOutgoingContext(ctx, metadataSessions, "all"))
	require.NoError(t, err)
	require.Len(t, ls.Leases, 2)
	_, err = c.Revoke(ctx, 7)
	require.NoError(t, err)
}

func TestMaintenance(t *testing.T) {
	n, conn := serve(t, Options{})
	ctx := testContext(t)
	m := pb.NewMaintenanceClient(conn)
	s, err := m.Status(ctx, &pb.StatusRequest{})
	require.NoError(t, err)
	require.Equal(t, "3.7.3", s.Version)
	require.EqualValues(t, fakeTerm, s.RaftTerm)
	require.Len(t, s.Errors, 1)
	require.Contains(t, s.Errors[0], "NOSPACE")
	n.leader.Store(0)
	s, err = m.Status(ctx, &pb.StatusRequest{})
	require.NoError(t, err)
	require.Equal(t, "etcdserver: no leader", s.Errors[0])

	_, err = m.MoveLeader(ctx, &pb.MoveLeaderRequest{TargetID: 1})
	require.Equal(t, rpctypes.ErrGRPCNotLeader.Error(), err.Error())
	n.leader.Store(fakeMember)
	_, err = m.MoveLeader(ctx, &pb.MoveLeaderRequest{TargetID: 1})
	require.NoError(t, err)

	h, err := m.Hash(ctx, &pb.HashRequest{})
	require.NoError(t, err)
	requireHeader(t, h.Header, 5)
	hk, err := m.HashKV(ctx, &pb.HashKVRequest{Revision: 4})
	require.NoError(t, err)
	requireHeader(t, hk.Header, 6)
	require.EqualValues(t, 4, hk.HashRevision)
	a, err := m.Alarm(ctx, &pb.AlarmRequest{})
	require.NoError(t, err)
	requireHeader(t, a.Header, 1)
	_, err = m.Defragment(ctx, &pb.DefragmentRequest{})
	require.NoError(t, err)
}

func TestDowngrade(t *testing.T) {
	_, conn := serve(t, Options{})
	m := pb.NewMaintenanceClient(conn)
	ask := func(a pb.DowngradeRequest_DowngradeAction, v string) (string, error) {
		resp, err := m.Downgrade(testContext(t), &pb.DowngradeRequest{Action: a, Version: v})
		return resp.GetVersion(), err
	}
	before, now := (version.Newest - 1).String(), version.Newest.String()
	for v, want := range map[string]error{
		"3.6": rpctypes.ErrGRPCInvalidDowngradeTargetVersion, "3.6.0": rpctypes.ErrGRPCInvalidDowngradeTargetVersion,
		now: rpctypes.ErrGRPCInvalidDowngradeTargetVersion, "0.0": rpctypes.ErrGRPCInvalidDowngradeTargetVersion,
		"": rpctypes.ErrGRPCWrongDowngradeVersionFormat, "three": rpctypes.ErrGRPCWrongDowngradeVersionFormat,
		"0": rpctypes.ErrGRPCWrongDowngradeVersionFormat, "0.1.x": rpctypes.ErrGRPCWrongDowngradeVersionFormat,
		"0.1-rc": rpctypes.ErrGRPCWrongDowngradeVersionFormat, "0.1.0.0": rpctypes.ErrGRPCWrongDowngradeVersionFormat,
	} {
		for _, a := range []pb.DowngradeRequest_DowngradeAction{pb.DowngradeRequest_VALIDATE, pb.DowngradeRequest_ENABLE} {
			_, err := ask(a, v)
			require.EqualError(t, err, want.Error(), v)
		}
	}
	for _, v := range []string{before, strings.TrimSuffix(before, ".0"), before + "-rc.1"} {
		got, err := ask(pb.DowngradeRequest_VALIDATE, v)
		require.NoError(t, err, v)
		require.Equal(t, now, got)
	}
	_, err := ask(pb.DowngradeRequest_CANCEL, "")
	require.NoError(t, err, "as in etcd, though there is none")
	s, err := m.Status(testContext(t), &pb.StatusRequest{})
	require.NoError(t, err)
	require.False(t, s.DowngradeInfo.Enabled)

	_, err = ask(pb.DowngradeRequest_ENABLE, before)
	require.NoError(t, err)
	_, err = ask(pb.DowngradeRequest_ENABLE, before)
	require.EqualError(t, err, rpctypes.ErrGRPCDowngradeInProcess.Error())
	s, err = m.Status(testContext(t), &pb.StatusRequest{})
	require.NoError(t, err)
	require.True(t, s.DowngradeInfo.Enabled)
	_, err = ask(pb.DowngradeRequest_CANCEL, "")
	require.NoError(t, err)
	_, err = ask(77, before)
	require.ErrorContains(t, err, "etcdserver: unknown method")
}

func TestSnapshot(t *testing.T) {
	_, conn := serve(t, Options{})
	stream, err := pb.NewMaintenanceClient(conn).Snapshot(testContext(t), &pb.SnapshotRequest{})
	require.NoError(t, err)
	var got []byte
	for {
		r, err := stream.Recv()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		require.Equal(t, "3.6.0", r.Version)
		got = append(got, r.Blob...)
	}
	content, sum := got[:len(got)-sha256.Size], got[len(got)-sha256.Size:]
	require.Equal(t, strings.Repeat("stoa", 20_000), string(content))
	want := sha256.Sum256(content)
	require.Equal(t, want[:], sum)
}

// That the state was wrong is known when all of it has been read.
func TestASnapshotIsAsGoodAsItsEnd(t *testing.T) {
	n, conn := serve(t, Options{})
	wrong := error(fault.Fenced)
	n.spoilt.Store(&wrong)
	stream, err := pb.NewMaintenanceClient(conn).Snapshot(testContext(t), &pb.SnapshotRequest{})
	for err == nil {
		_, err = stream.Recv()
	}
	require.Equal(t, codes.Unavailable, status.Code(err), err)
}

// A learner refuses what etcd's do, and serves serializable reads.
func TestALearnerServesLittle(t *testing.T) {
	n, conn := serve(t, Options{})
	n.learner.Store(true)
	ctx := testContext(t)
	_, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte("k"), Serializable: true})
	require.NoError(t, err)
	_, err = pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{})
	require.NoError(t, err)
	for what, refused := range map[string]func() error{
		"range": func() error {
			_, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte("k")})
			return err
		},
		"put":  func() error { _, err := pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: []byte("k")}); return err },
		"list": func() error { _, err := pb.NewClusterClient(conn).MemberList(ctx, &pb.MemberListRequest{}); return err },
		"lock": func() error {
			_, err := lockpb.NewLockClient(conn).Lock(ctx, &lockpb.LockRequest{})
			return err
		},
		"watch": func() error {
			w, err := pb.NewWatchClient(conn).Watch(ctx)
			if err == nil {
				_, err = w.Recv()
			}
			return err
		},
	} {
		require.Equal(t, rpctypes.ErrGRPCNotSupportedForLearner.Error(), refused().Error(), what)
	}
}

// A fenced member shows an operator what is wrong, and serves nothing else.
func TestAFencedMemberServesNothing(t *testing.T) {
	n, conn := serve(t, Options{})
	n.fenced.Store(true)
	ctx := testContext(t)
	_, err := pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{})
	require.NoError(t, err)
	_, err = pb.NewMaintenanceClient(conn).HashKV(ctx, &pb.HashKVRequest{})
	require.NoError(t, err)
	for what, refused := range map[string]func() error{
		"range": func() error {
			_, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte("k"), Serializable: true})
			return err
		},
		"put":    func() error { _, err := pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: []byte("k")}); return err },
		"leases": func() error { _, err := pb.NewLeaseClient(conn).LeaseLeases(ctx, &pb.LeaseLeasesRequest{}); return err },
		"list":   func() error { _, err := pb.NewClusterClient(conn).MemberList(ctx, &pb.MemberListRequest{}); return err },
		"snapshot": func() error {
			s, err := pb.NewMaintenanceClient(conn).Snapshot(ctx, &pb.SnapshotRequest{})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
		"watch": func() error {
			w, err := pb.NewWatchClient(conn).Watch(ctx)
			if err == nil {
				_, err = w.Recv()
			}
			return err
		},
	} {
		require.Equal(t, codes.Unavailable, status.Code(refused()), what)
	}
}

func TestClusterAndAuth(t *testing.T) {
	n, conn := serve(t, Options{})
	ctx := testContext(t)
	l, err := pb.NewClusterClient(conn).MemberList(ctx, &pb.MemberListRequest{Linearizable: true})
	require.NoError(t, err)
	requireHeader(t, l.Header, 0)
	require.Len(t, l.Members, 1)
	added, err := pb.NewClusterClient(conn).MemberAdd(ctx, &pb.MemberAddRequest{PeerURLs: []string{"http://b:1"}, IsLearner: true})
	require.NoError(t, err)
	requireHeader(t, added.Header, 0)
	require.True(t, added.Member.IsLearner)
	require.Len(t, added.Members, 2)
	n.fail(fault.TooManyLearners)
	_, err = pb.NewClusterClient(conn).MemberAdd(ctx, &pb.MemberAddRequest{})
	require.Equal(t, rpctypes.ErrGRPCTooManyLearners.Error(), err.Error())
}

func TestUsersAndRoles(t *testing.T) {
	n, conn := serve(t, Options{})
	ctx := testContext(t)
	a := pb.NewAuthClient(conn)
	s, err := a.AuthStatus(ctx, &pb.AuthStatusRequest{})
	require.NoError(t, err)
	require.False(t, s.Enabled)
	require.EqualValues(t, 1, s.AuthRevision)
	requireHeader(t, s.Header, 1)
	added, err := a.UserAdd(ctx, &pb.AuthUserAddRequest{Name: "root"})
	require.NoError(t, err)
	requireHeader(t, added.Header, 1)
	_, err = a.UserAdd(ctx, &pb.AuthUserAddRequest{Name: "root"})
	require.Equal(t, rpctypes.ErrGRPCUserAlreadyExist.Error(), err.Error())
	_, err = a.AuthEnable(ctx, &pb.AuthEnableRequest{})
	require.Equal(t, rpctypes.ErrGRPCRootRoleNotExist.Error(), err.Error())
	n.fail(fault.AuthFailed)
	_, err = a.Authenticate(ctx, &pb.AuthenticateRequest{Name: "root", Password: "x"})
	require.Equal(t, rpctypes.ErrGRPCAuthFailed.Error(), err.Error())
}

// Every method of the services that change or show more than keys asks for a right, before
// the node hears of it.
func TestRightsOfMethods(t *testing.T) {
	n, conn := serve(t, Options{})
	ctx := testContext(t)
	var asked []bool
	deny := func(root bool) error {
		asked = append(asked, root)
		return fault.PermissionDenied
	}
	n.permit.Store(&deny)
	m, c := pb.NewMaintenanceClient(conn), pb.NewClusterClient(conn)
	for name, call := range map[string]func() error{
		"defragment": func() error { _, err := m.Defragment(ctx, &pb.DefragmentRequest{}); return err },
		"hash":       func() error { _, err := m.Hash(ctx, &pb.HashRequest{}); return err },
		"hashkv":     func() error { _, err := m.HashKV(ctx, &pb.HashKVRequest{}); return err },
		"moveleader": func() error { _, err := m.MoveLeader(ctx, &pb.MoveLeaderRequest{}); return err },
		"downgrade":  func() error { _, err := m.Downgrade(ctx, &pb.DowngradeRequest{}); return err },
		"snapshot": func() error {
			s, err := m.Snapshot(ctx, &pb.SnapshotRequest{})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
		"add":     func() error { _, err := c.MemberAdd(ctx, &pb.MemberAddRequest{}); return err },
		"remove":  func() error { _, err := c.MemberRemove(ctx, &pb.MemberRemoveRequest{}); return err },
		"update":  func() error { _, err := c.MemberUpdate(ctx, &pb.MemberUpdateRequest{}); return err },
		"promote": func() error { _, err := c.MemberPromote(ctx, &pb.MemberPromoteRequest{}); return err },
		"compact": func() error { _, err := pb.NewKVClient(conn).Compact(ctx, &pb.CompactionRequest{}); return err },
	} {
		asked = nil
		require.ErrorContains(t, call(), "permission denied", name)
		require.Equal(t, []bool{true}, asked, name)
	}
	for name, call := range map[string]func() error{
		"status": func() error { _, err := m.Status(ctx, &pb.StatusRequest{}); return err },
		"list":   func() error { _, err := c.MemberList(ctx, &pb.MemberListRequest{}); return err },
	} {
		asked = nil
		require.ErrorContains(t, call(), "permission denied", name)
		require.Equal(t, []bool{false}, asked, name)
	}
}

func TestLeaderDemanded(t *testing.T) {
	n, conn := serve(t, Options{ElectionTimeout: 10 * time.Millisecond})
	ctx := testContext(t)
	demand := metadata.AppendToOutgoingContext(ctx, rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
	stream := func(ctx context.Context) pb.Watch_WatchClient {
		s, err := pb.NewWatchClient(conn).Watch(ctx)
		require.NoError(t, err)
		require.NoError(t, s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("a")}}}))
		_, err = s.Recv()
		require.NoError(t, err)
		return s
	}
	demanding, patient := stream(demand), stream(ctx)
	keep, err := pb.NewLeaseClient(conn).LeaseKeepAlive(demand)
	require.NoError(t, err)
	require.NoError(t, keep.Send(&pb.LeaseKeepAliveRequest{ID: 1}))
	_, err = keep.Recv()
	require.NoError(t, err)

	n.leader.Store(0)
	_, err = demanding.Recv()
	require.Equal(t, rpctypes.ErrGRPCNoLeader.Error(), err.Error())
	_, err = keep.Recv()
	require.Equal(t, rpctypes.ErrGRPCNoLeader.Error(), err.Error())
	kv := pb.NewKVClient(conn)
	_, err = kv.Range(demand, &pb.RangeRequest{Key: []byte("a")})
	require.Equal(t, rpctypes.ErrGRPCNoLeader.Error(), err.Error())
	_, err = kv.Range(ctx, &pb.RangeRequest{Key: []byte("a")})
	require.NoError(t, err)

	_, err = n.Put(ctx, &pb.PutRequest{Key: []byte("a")})
	require.NoError(t, err)
	r, err := patient.Recv()
	require.NoError(t, err)
	require.Len(t, r.Events, 1)
}

func TestLimitsHealthAndMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	_, conn := serve(t, Options{MaxRequestBytes: 1000, Metrics: reg})
	ctx := testContext(t)
	kv := pb.NewKVClient(conn)
	_, err := kv.Put(ctx, &pb.PutRequest{Key: []byte("a"), Value: make([]byte, 1000+frameOverhead)})
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	_, err = kv.Put(ctx, &pb.PutRequest{Key: []byte("a"), Value: make([]byte, 100_000)})
	require.NoError(t, err)
	_, err = kv.Put(ctx, &pb.PutRequest{})
	require.Equal(t, codes.InvalidArgument, status.Code(err))

	h, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, h.Status)
	families, err := reg.Gather()
	require.NoError(t, err)
	count := func(name string, labels ...string) (sum float64) {
		for _, f := range families {
			for _, m := range f.Metric {
				text := m.String()
				if f.GetName() == name && !slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(text, `"`+l+`"`) }) {
					sum += m.GetCounter().GetValue()
				}
			}
		}
		return sum
	}
	require.EqualValues(t, 3, count("grpc_server_started_total", "Put", "etcdserverpb.KV", "unary"))
	require.EqualValues(t, 1, count("grpc_server_handled_total", "Put", "OK"))
	require.EqualValues(t, 1, count("grpc_server_handled_total", "Put", "InvalidArgument"))
}
