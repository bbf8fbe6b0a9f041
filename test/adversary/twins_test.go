package adversary

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/test/process"
)

// nobody is the user without a role. Passwords are names.
const nobody = "nobody"

// hiddenExtensions are each registered on one of the twins.
var hiddenExtensions = [2]string{"first", "second"}

// twin is one of the servers.
type twin struct {
	t      *testing.T
	server *process.Server
	root   *clientv3.Client
	conn   *grpc.ClientConn // of the adversary
	peer   *grpc.ClientConn
	token  string
}

// newTwins starts two servers that differ in what the adversary must not learn.
func newTwins(t *testing.T) [2]*twin { return [2]*twin{newTwin(t, 0), newTwin(t, 1)} }

func newTwin(t *testing.T, i int) *twin {
	c := process.StartT(t, process.Spec{Partitions: 2, Args: append(strings.Fields(*more), "--bcrypt-cost=4", "--max-request-bytes=65536")})
	w := &twin{t: t, server: c.Servers[0]}
	open, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Logger: zap.NewNop()})
	require.NoError(t, err)
	w.addUsers(open)
	require.NoError(t, open.Close())
	w.root, err = clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Username: "root", Password: "root", Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.root.Close() })
	w.conn, w.peer = dial(t, w.server.ClientURL), dial(t, w.server.PeerURL)
	resp, err := pb.NewAuthClient(w.conn).Authenticate(t.Context(), &pb.AuthenticateRequest{Name: nobody, Password: nobody})
	require.NoError(t, err)
	w.token = resp.Token
	w.hide(i)
	return w
}

func dial(t *testing.T, url string) *grpc.ClientConn {
	_, at, _ := strings.Cut(url, "://")
	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (w *twin) addUsers(c *clientv3.Client) {
	ctx := w.t.Context()
	for _, u := range []string{"root", nobody, "someone"} {
		_, err := c.UserAdd(ctx, u, u)
		require.NoError(w.t, err)
	}
	for user, role := range map[string]string{"root": "root", "someone": "someones"} {
		_, err := c.RoleAdd(ctx, role)
		require.NoError(w.t, err)
		_, err = c.UserGrantRole(ctx, user, role)
		require.NoError(w.t, err)
	}
	_, err := c.RoleGrantPermission(ctx, "someones", "/hidden/", "/hidden0", clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(w.t, err)
	_, err = c.AuthEnable(ctx)
	require.NoError(w.t, err)
}

// hide writes what is to stay hidden: other keys, values, versions, leases' keys, extensions
// and another compaction on each.
func (w *twin) hide(i int) {
	ctx, own := w.t.Context(), string(rune('a'+i))
	put := func(key, value string, more ...clientv3.OpOption) *clientv3.PutResponse {
		resp, err := w.root.Put(ctx, key, value, more...)
		require.NoError(w.t, err)
		return resp
	}
	for _, id := range []clientv3.LeaseID{firstLease, secondLease} {
		_, err := pb.NewLeaseClient(w.root.ActiveConnection()).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: int64(id), TTL: 3600})
		require.NoError(w.t, err)
		for k := range 1 + 2*i {
			put(fmt.Sprintf("/hidden/%s/l3ased/%d/%d", own, id, k), own, clientv3.WithLease(id))
		}
	}
	var last *clientv3.PutResponse
	for k := range 3 + 5*i {
		for range 1 + 3*i {
			last = put(fmt.Sprintf("/hidden/%s/%d", own, k), fmt.Sprintf("s3cr3t %s %d", own, k))
		}
	}
	put("/hidden/both", "s3cr3t "+own)
	put("/em/"+hiddenExtensions[i], source("/called/"+string(rune('x'+i)), own))
	_, err := w.root.Compact(ctx, last.Header.Revision-int64(i))
	require.NoError(w.t, err)
}

// source is that of an extension with handlers for all operations on a key, a scope that gets
// a rule of placement, and lines in its log.
func source(key, own string) string {
	return fmt.Sprintf(`return {
  scope = { %q, "/called/%s/d33p/er/" },
  operations = { { op = "read", key = %[1]q }, { op = "put", key = %[1]q }, { op = "delete", key = %[1]q }, { op = "txn", key = %[1]q } },
  read = function(request) put(%[1]q, "called") return "s3cr3t" end,
  put = function(request) put(%[1]q, "called") end,
  delete = function(request) put(%[1]q, "called") end,
  txn = function(request) put(%[1]q, "called") end,
}`, key, own)
}

// state is all of the server that the adversary must not change. It is asked for as root.
func (w *twin) state() string {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	var b strings.Builder
	note := func(m proto.Message, err error) {
		require.NoError(w.t, err)
		forgive(m.ProtoReflect(), always)
		b.WriteString(prototext.Format(m) + "\n")
	}
	conn := w.root.ActiveConnection()
	note(pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}))
	a := pb.NewAuthClient(conn)
	note(a.AuthStatus(ctx, &pb.AuthStatusRequest{}))
	note(a.UserList(ctx, &pb.AuthUserListRequest{}))
	note(a.RoleList(ctx, &pb.AuthRoleListRequest{}))
	for _, user := range []string{"root", nobody, "someone"} {
		note(a.UserGet(ctx, &pb.AuthUserGetRequest{Name: user}))
	}
	note(a.RoleGet(ctx, &pb.AuthRoleGetRequest{Role: "someones"}))
	note(pb.NewMaintenanceClient(conn).Alarm(ctx, &pb.AlarmRequest{}))
	note(pb.NewClusterClient(conn).MemberList(ctx, &pb.MemberListRequest{}))
	hash, err := pb.NewMaintenanceClient(conn).HashKV(ctx, &pb.HashKVRequest{})
	require.NoError(w.t, err)
	fmt.Fprintln(&b, "hash", hash.Hash, "compacted", hash.CompactRevision)
	for _, id := range []int64{firstLease, secondLease} {
		l, err := pb.NewLeaseClient(conn).LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id, Keys: true})
		require.NoError(w.t, err)
		fmt.Fprintf(&b, "lease %d of %d s with %q\n", id, l.GrantedTTL, l.Keys)
	}
	list, err := stoapb.NewPartitionsClient(conn).List(ctx, &stoapb.ListPartitionsRequest{})
	require.NoError(w.t, err)
	for _, p := range list.Partitions {
		fmt.Fprintln(&b, p.Id, p.Slots, p.Keys)
	}
	fmt.Fprintln(&b, "pins", list.Pins)
	return b.String()
}

// healthy makes sure that the server hasn't failed meanwhile.
func (w *twin) healthy() {
	require.True(w.t, w.server.Running(), w.server.LogTail(4000))
	log, err := os.ReadFile(w.server.LogFile)
	require.NoError(w.t, err)
	for _, bad := range []string{"panic", "goroutine ", `"level":"fatal"`, `"level":"error"`} {
		require.NotContains(w.t, string(log), bad)
	}
}
