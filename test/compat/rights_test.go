package compat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/lockpb"
	"github.com/stoa-kv/stoa/test/process"
)

// right is a request, and the answers with authentication enabled to a client without a token
// and to the user nobody, who has no role. An answer is the code and the text, or OK.
type right struct {
	method       string
	req          proto.Message
	none, nobody string
}

// TestRightsOfMethods asks each method of a server, without a token and as a user without a role.
// With STOA_COMPAT_SERVER=etcd it shows that the answers are etcd's.
func TestRightsOfMethods(t *testing.T) {
	t.Parallel()
	bin, err := process.UnderTest()
	require.NoError(t, err)
	r, table := newRights(t), slices.Concat(rights, ofStoa)
	if !bin.Stoa {
		table = slices.Concat(rights, ofEtcd)
	}
	asked := map[string]bool{}
	for _, x := range table {
		asked[x.method] = true
		if !bin.Stoa && strings.HasPrefix(x.method, "/stoa.") {
			continue
		}
		require.Equal(t, x.none, r.ask(x, ""), "%s %v without a token", x.method, x.req)
		require.Equal(t, x.nobody, r.ask(x, r.token), "%s %v by a user without a role", x.method, x.req)
	}
	for _, method := range methodsOfClients(t) {
		require.True(t, asked[method], "%s belongs into the table of the rights of methods", method)
	}
	all, err := r.as("root").Get(r.ctx, "", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, all.Kvs, 1, "nothing was written or deleted")
	require.EqualValues(t, 1, all.Kvs[0].Version)
	require.EqualValues(t, 7, all.Kvs[0].Lease)
}

// methodsOfClients are those of all services that a server has registered: TestMethods of cmd/stoa
// compares the list with it.
func methodsOfClients(t *testing.T) (all []string) {
	list, err := os.ReadFile("../../cmd/stoa/testdata/methods.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(list)) {
		if method, ok := strings.CutPrefix(strings.TrimSpace(line), "client "); ok {
			all = append(all, method)
		}
	}
	require.Greater(t, len(all), 60)
	return all
}

// rightsRig is a server with a key, a lease, a user without any right, and authentication.
type rightsRig struct {
	*guarded
	token string
}

func newRights(t *testing.T) *rightsRig {
	t.Helper()
	bin, err := process.UnderTest()
	require.NoError(t, err)
	s := shape{1, 2}
	if !bin.Stoa {
		s.parts = 1
	}
	c := process.StartT(t, process.Spec{Nodes: 1, Partitions: s.parts, Args: cheap})
	r := &rightsRig{guarded: &guarded{env: newEnv(t, s, c)}}
	_, err = r.lease.LeaseGrant(r.ctx, &pb.LeaseGrantRequest{ID: 7, TTL: 600})
	require.NoError(t, err)
	_, err = r.kv.Put(r.ctx, &pb.PutRequest{Key: []byte("key"), Value: []byte("value"), Lease: 7})
	require.NoError(t, err)
	for _, name := range []string{"root", "nobody"} {
		_, err = r.cli.UserAdd(r.ctx, name, name)
		require.NoError(t, err)
	}
	_, err = r.cli.RoleAdd(r.ctx, "root")
	require.NoError(t, err)
	_, err = r.cli.UserGrantRole(r.ctx, "root", "root")
	require.NoError(t, err)
	_, err = r.cli.AuthEnable(r.ctx)
	require.NoError(t, err)
	a, err := pb.NewAuthClient(r.conn).Authenticate(r.ctx, &pb.AuthenticateRequest{Name: "nobody", Password: "nobody"})
	require.NoError(t, err)
	r.token = a.Token
	return r
}

// ask returns the first answer to a request, with a token if there is one.
func (r *rightsRig) ask(x right, token string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "token", token)
	}
	service, name, _ := strings.Cut(strings.TrimPrefix(x.method, "/"), "/")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	require.NoError(r.t, err)
	m := d.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(name))
	out, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	require.NoError(r.t, err)
	resp := out.New().Interface()
	if !m.IsStreamingClient() && !m.IsStreamingServer() {
		return answered(resp, r.conn.Invoke(ctx, x.method, x.req, resp))
	}
	stream, err := r.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: m.IsStreamingClient(), ServerStreams: m.IsStreamingServer()}, x.method)
	require.NoError(r.t, err)
	if err := stream.SendMsg(x.req); err != nil && !errors.Is(err, io.EOF) {
		return answered(nil, err)
	}
	if !m.IsStreamingClient() {
		require.NoError(r.t, stream.CloseSend())
	}
	if err = stream.RecvMsg(resp); errors.Is(err, io.EOF) {
		err = nil
	}
	return answered(resp, err)
}

func answered(resp proto.Message, err error) string {
	if w, ok := resp.(*pb.WatchResponse); ok && w.GetCanceled() {
		return "canceled: " + w.GetCancelReason()
	}
	if err == nil {
		return codes.OK.String()
	}
	s := status.Convert(err)
	return s.Code().String() + ": " + s.Message()
}

// Answers.
const (
	allowed   = "OK"
	unnamed   = "InvalidArgument: etcdserver: user name is empty"
	forbidden = "PermissionDenied: etcdserver: permission denied"

	// Of requests that are malformed, whoever sends them.
	noKey    = "InvalidArgument: etcdserver: key is not provided"
	noURL    = "InvalidArgument: etcdserver: given member URLs are invalid"
	noLogin  = "InvalidArgument: etcdserver: authentication failed, invalid user ID or password"
	noNumber = "InvalidArgument: stoa: there can be 1 to 16 partitions"
	noLeader = `Unknown: "leader" field must be provided`
)

// unknown is an answer of etcd's locks and elections, which lose the code.
func unknown(answer string) string {
	_, text, _ := strings.Cut(answer, ": ")
	return "Unknown: " + text
}

// canceled is how a watch is refused.
func canceled(answer string) string {
	code, text, _ := strings.Cut(answer, ": ")
	return fmt.Sprintf("canceled: rpc error: code = %s desc = %s", code, text)
}

// rights are the same requests and answers with etcd and stoa.
var rights = []right{
	{"/etcdserverpb.Auth/AuthDisable", &pb.AuthDisableRequest{}, unnamed, forbidden},
	{"/etcdserverpb.Auth/AuthEnable", &pb.AuthEnableRequest{}, unnamed, forbidden},
	{"/etcdserverpb.Auth/AuthStatus", &pb.AuthStatusRequest{}, allowed, allowed},
	{"/etcdserverpb.Auth/Authenticate", &pb.AuthenticateRequest{Name: "nobody", Password: "nobody"}, allowed, allowed},
	{"/etcdserverpb.Auth/Authenticate", &pb.AuthenticateRequest{}, noLogin, noLogin},
	{"/etcdserverpb.Auth/RoleAdd", &pb.AuthRoleAddRequest{Name: "new"}, unnamed, forbidden},
	{"/etcdserverpb.Auth/RoleDelete", &pb.AuthRoleDeleteRequest{Role: "root"}, unnamed, forbidden},
	{"/etcdserverpb.Auth/RoleGet", &pb.AuthRoleGetRequest{Role: "root"}, unnamed, forbidden},
	{"/etcdserverpb.Auth/RoleGrantPermission", &pb.AuthRoleGrantPermissionRequest{Name: "root", Perm: &authpb.Permission{Key: []byte("key")}}, unnamed, forbidden},
	{"/etcdserverpb.Auth/RoleList", &pb.AuthRoleListRequest{}, unnamed, forbidden},
	{"/etcdserverpb.Auth/RoleRevokePermission", &pb.AuthRoleRevokePermissionRequest{Role: "root", Key: []byte("key")}, unnamed, forbidden},
	{"/etcdserverpb.Auth/UserAdd", &pb.AuthUserAddRequest{Name: "new", Password: "new"}, unnamed, forbidden},
	{"/etcdserverpb.Auth/UserChangePassword", &pb.AuthUserChangePasswordRequest{Name: "nobody", Password: "new"}, unnamed, forbidden},
	{"/etcdserverpb.Auth/UserDelete", &pb.AuthUserDeleteRequest{Name: "nobody"}, unnamed, forbidden},
	{"/etcdserverpb.Auth/UserGet", &pb.AuthUserGetRequest{Name: "root"}, unnamed, forbidden},
	{"/etcdserverpb.Auth/UserGrantRole", &pb.AuthUserGrantRoleRequest{User: "nobody", Role: "root"}, unnamed, forbidden},
	{"/etcdserverpb.Auth/UserList", &pb.AuthUserListRequest{}, unnamed, forbidden},
	{"/etcdserverpb.Auth/UserRevokeRole", &pb.AuthUserRevokeRoleRequest{Name: "root", Role: "root"}, unnamed, forbidden},
	{"/etcdserverpb.Cluster/MemberAdd", &pb.MemberAddRequest{PeerURLs: []string{"http://127.0.0.1:1"}, IsLearner: true}, unnamed, forbidden},
	{"/etcdserverpb.Cluster/MemberList", &pb.MemberListRequest{}, unnamed, allowed},
	{"/etcdserverpb.Cluster/MemberPromote", &pb.MemberPromoteRequest{ID: 1}, unnamed, forbidden},
	{"/etcdserverpb.Cluster/MemberRemove", &pb.MemberRemoveRequest{ID: 1}, unnamed, forbidden},
	{"/etcdserverpb.Cluster/MemberUpdate", &pb.MemberUpdateRequest{ID: 1, PeerURLs: []string{"http://127.0.0.1:1"}}, unnamed, forbidden},
	{"/etcdserverpb.KV/Compact", &pb.CompactionRequest{Revision: 1}, unnamed, forbidden},
	{"/etcdserverpb.KV/DeleteRange", &pb.DeleteRangeRequest{Key: []byte("key")}, unnamed, forbidden},
	{"/etcdserverpb.KV/DeleteRange", &pb.DeleteRangeRequest{}, noKey, noKey},
	{"/etcdserverpb.KV/Put", &pb.PutRequest{Key: []byte("key")}, unnamed, forbidden},
	{"/etcdserverpb.KV/Put", &pb.PutRequest{}, noKey, noKey},
	{"/etcdserverpb.KV/Range", &pb.RangeRequest{Key: []byte("key")}, unnamed, forbidden},
	{"/etcdserverpb.KV/Range", &pb.RangeRequest{}, noKey, noKey},
	{"/etcdserverpb.KV/RangeStream", &pb.RangeRequest{Key: []byte("key")}, unnamed, forbidden},
	{"/etcdserverpb.KV/RangeStream", &pb.RangeRequest{}, noKey, noKey},
	{"/etcdserverpb.KV/Txn", &pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte("key")}}}, unnamed, forbidden},
	{"/etcdserverpb.Lease/LeaseGrant", &pb.LeaseGrantRequest{TTL: 60}, unnamed, allowed},
	{"/etcdserverpb.Lease/LeaseKeepAlive", &pb.LeaseKeepAliveRequest{ID: 7}, unnamed, forbidden},
	{"/etcdserverpb.Lease/LeaseKeepAlive", &pb.LeaseKeepAliveRequest{}, unnamed, allowed},
	{"/etcdserverpb.Lease/LeaseLeases", &pb.LeaseLeasesRequest{}, unnamed, forbidden},
	{"/etcdserverpb.Lease/LeaseRevoke", &pb.LeaseRevokeRequest{ID: 7}, unnamed, forbidden},
	{"/etcdserverpb.Lease/LeaseRevoke", &pb.LeaseRevokeRequest{}, unnamed, "NotFound: etcdserver: requested lease not found"},
	{"/etcdserverpb.Lease/LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: 7}, unnamed, allowed},
	{"/etcdserverpb.Lease/LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: 7, Keys: true}, unnamed, forbidden},
	{"/etcdserverpb.Maintenance/Alarm", &pb.AlarmRequest{}, unnamed, allowed},
	{"/etcdserverpb.Maintenance/Defragment", &pb.DefragmentRequest{}, unnamed, forbidden},
	{"/etcdserverpb.Maintenance/Downgrade", &pb.DowngradeRequest{Action: pb.DowngradeRequest_CANCEL}, unnamed, forbidden},
	{"/etcdserverpb.Maintenance/Hash", &pb.HashRequest{}, unnamed, forbidden},
	{"/etcdserverpb.Maintenance/HashKV", &pb.HashKVRequest{}, unnamed, forbidden},
	{"/etcdserverpb.Maintenance/MoveLeader", &pb.MoveLeaderRequest{TargetID: 1}, unnamed, forbidden},
	{"/etcdserverpb.Maintenance/Snapshot", &pb.SnapshotRequest{}, unnamed, forbidden},
	{"/etcdserverpb.Maintenance/Status", &pb.StatusRequest{}, unnamed, allowed},
	{"/etcdserverpb.Watch/Watch", watching("key"), canceled(unnamed), canceled(forbidden)},
	{"/grpc.health.v1.Health/Check", &healthpb.HealthCheckRequest{}, allowed, allowed},
	{"/grpc.health.v1.Health/List", &healthpb.HealthListRequest{}, allowed, allowed},
	{"/grpc.health.v1.Health/Watch", &healthpb.HealthCheckRequest{}, allowed, allowed},
	{"/stoa.v1.Extensions/Logs", &stoapb.ExtensionLogsRequest{Name: "x"}, unnamed, forbidden},
	{"/stoa.v1.Extensions/Profile", &stoapb.ExtensionProfileRequest{Name: "x", Duration: 1}, unnamed, forbidden},
	{"/stoa.v1.Partitions/Balance", &stoapb.BalanceRequest{}, unnamed, forbidden},
	{"/stoa.v1.Partitions/List", &stoapb.ListPartitionsRequest{}, unnamed, forbidden},
	{"/stoa.v1.Partitions/Move", &stoapb.MoveKeysRequest{Prefix: []byte("/a/"), Partition: 1}, unnamed, forbidden},
	{"/stoa.v1.Partitions/Pin", &stoapb.PinKeysRequest{Prefix: []byte("/a/"), Partition: 1}, unnamed, forbidden},
	{"/stoa.v1.Partitions/Resize", &stoapb.ResizeRequest{Partitions: 3}, unnamed, forbidden},
	{"/stoa.v1.Partitions/Resize", &stoapb.ResizeRequest{}, noNumber, noNumber},
	{"/stoa.v1.Partitions/Unpin", &stoapb.UnpinKeysRequest{Prefix: []byte("/a/")}, unnamed, forbidden},
	{"/stoa.v1.Quotas/List", &stoapb.ListQuotasRequest{}, unnamed, forbidden},
	{"/stoa.v1.Quotas/Remove", &stoapb.RemoveQuotaRequest{Role: "root"}, unnamed, forbidden},
	{"/stoa.v1.Quotas/Set", &stoapb.SetQuotaRequest{Quota: &stoapb.Quota{Role: "root", MaxKeys: 1}}, unnamed, forbidden},
	{"/stoa.v1.Sessions/Open", &stoapb.ClientBatch{Open: &stoapb.OpenSession{Ttl: 60}}, unnamed, allowed},
	{"/v3electionpb.Election/Campaign", &lockpb.CampaignRequest{Name: []byte("n"), Lease: 7}, unknown(unnamed), unknown(forbidden)},
	{"/v3electionpb.Election/Leader", &lockpb.LeaderRequest{Name: []byte("n")}, unknown(unnamed), unknown(forbidden)},
	{"/v3electionpb.Election/Proclaim", &lockpb.ProclaimRequest{Leader: &lockpb.LeaderKey{Key: []byte("n/7"), Rev: 2, Lease: 7}}, unknown(unnamed), unknown(forbidden)},
	{"/v3electionpb.Election/Proclaim", &lockpb.ProclaimRequest{}, noLeader, noLeader},
	{"/v3electionpb.Election/Resign", &lockpb.ResignRequest{Leader: &lockpb.LeaderKey{Key: []byte("n/7"), Rev: 2, Lease: 7}}, unknown(unnamed), unknown(forbidden)},
	{"/v3electionpb.Election/Resign", &lockpb.ResignRequest{}, noLeader, noLeader},
	{"/v3lockpb.Lock/Lock", &lockpb.LockRequest{Name: []byte("n"), Lease: 7}, unknown(unnamed), unknown(forbidden)},
	{"/v3lockpb.Lock/Unlock", &lockpb.UnlockRequest{Key: []byte("n/7")}, unknown(unnamed), unknown(forbidden)},
	{"/v3lockpb.Lock/Unlock", &lockpb.UnlockRequest{}, unknown(noKey), unknown(noKey)},
}

// Stoa looks for rights first also where etcd first finds a request malformed: for a user's name
// that is empty, URLs that are missing, and a transaction without any operation. And where etcd ends
// the stream of an observer without a word, stoa's has the error.
var (
	ofStoa = []right{
		{"/etcdserverpb.Auth/UserGet", &pb.AuthUserGetRequest{}, unnamed, forbidden},
		{"/etcdserverpb.Cluster/MemberAdd", &pb.MemberAddRequest{}, unnamed, forbidden},
		{"/etcdserverpb.KV/Txn", &pb.TxnRequest{}, unnamed, allowed},
		{"/v3electionpb.Election/Observe", &lockpb.LeaderRequest{Name: []byte("n")}, unknown(unnamed), unknown(forbidden)},
	}
	ofEtcd = []right{
		{"/etcdserverpb.Auth/UserGet", &pb.AuthUserGetRequest{}, "FailedPrecondition: etcdserver: user name not found", forbidden},
		{"/etcdserverpb.Cluster/MemberAdd", &pb.MemberAddRequest{}, noURL, noURL},
		{"/etcdserverpb.KV/Txn", &pb.TxnRequest{}, allowed, allowed},
		{"/v3electionpb.Election/Observe", &lockpb.LeaderRequest{Name: []byte("n")}, allowed, allowed},
	}
)

func watching(key string) *pb.WatchRequest {
	create := &pb.WatchCreateRequest{Key: []byte(key)}
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}
}
