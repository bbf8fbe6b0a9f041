package main

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// fakeServer answers with the request that it got, so that a test sees the
// request, and with fixed values, so that it sees their output form.
type fakeServer struct {
	pb.UnimplementedKVServer
	pb.UnimplementedClusterServer
	pb.UnimplementedMaintenanceServer
	pb.UnimplementedLeaseServer
	pb.UnimplementedAuthServer
	stoapb.UnimplementedPartitionsServer
	last     any
	metadata metadata.MD // of the last call
	expired  atomic.Bool // the lease 1f, behind its first renewals
}

var header = &pb.ResponseHeader{ClusterId: 0xc1, MemberId: 0xa1, Revision: 7, RaftTerm: 2}

var foo = &mvccpb.KeyValue{Key: []byte("foo"), Value: []byte("bar"), CreateRevision: 2, ModRevision: 3, Version: 2, Lease: 10}

func (s *fakeServer) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	s.last = r
	return &pb.RangeResponse{Header: header, Kvs: []*mvccpb.KeyValue{foo}, Count: 1}, nil
}

func (s *fakeServer) Put(_ context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	s.last = r
	return &pb.PutResponse{Header: header, PrevKv: foo}, nil
}

func (s *fakeServer) DeleteRange(_ context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	s.last = r
	return &pb.DeleteRangeResponse{Header: header, Deleted: 1}, nil
}

// inTwo tells a read of all keys but those below /stoa/ in a composition.
func inTwo(r *pb.TxnRequest) bool {
	return len(r.Compare) == 0 && len(r.Success) == 2 && r.Success[0].GetRequestRange() != nil && r.Success[1].GetRequestRange() != nil
}

func (s *fakeServer) Txn(_ context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	s.last = r
	if inTwo(r) {
		answer := &pb.TxnResponse{Header: header, Succeeded: true}
		for _, op := range r.Success {
			var found []*mvccpb.KeyValue
			q := op.GetRequestRange()
			if bytes.Compare(q.GetKey(), foo.Key) <= 0 && (bytes.Equal(q.RangeEnd, []byte{0}) || bytes.Compare(foo.Key, q.RangeEnd) < 0) {
				found = []*mvccpb.KeyValue{foo}
			}
			answer.Responses = append(answer.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{
				ResponseRange: &pb.RangeResponse{Kvs: found, Count: int64(len(found))}}})
		}
		return answer, nil
	}
	return &pb.TxnResponse{Header: header, Succeeded: true, Responses: []*pb.ResponseOp{
		{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}},
		{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{foo}}}},
		{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{Deleted: 3}}},
	}}, nil
}

func (s *fakeServer) MemberList(context.Context, *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	return &pb.MemberListResponse{Header: header, Members: []*pb.Member{{ID: 0xa1, Name: "n1", PeerURLs: []string{"http://p"}, ClientURLs: []string{"http://c"}}}}, nil
}

func (s *fakeServer) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Header: header, Version: "3.7.3", DbSize: 20480, DbSizeInUse: 16384, Leader: 0xa1, RaftTerm: 2, RaftIndex: 9, RaftAppliedIndex: 9, DbSizeQuota: 2 << 30}, nil
}

func (s *fakeServer) Alarm(context.Context, *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	return &pb.AlarmResponse{Header: header, Alarms: []*pb.AlarmMember{{Alarm: pb.AlarmType_NOSPACE}}}, nil
}

func (s *fakeServer) List(context.Context, *stoapb.ListPartitionsRequest) (*stoapb.ListPartitionsResponse, error) {
	return &stoapb.ListPartitionsResponse{Partitions: []*stoapb.Partition{{Id: 0, Leader: 0xa1, Term: 2, Slots: 512}, {Id: 1, Leader: 0xa1, Term: 2, Slots: 512, Keys: 3, Bytes: 20480, Load: 0.43,
		Hottest: []*stoapb.PrefixLoad{{Prefix: []byte("/p/a/"), Load: 0.4}, {Prefix: []byte("/p/b"), Load: 0.02}}}},
		Pins: []*stoapb.PinnedKeys{{Prefix: []byte("/p/"), Partition: 1}}}, nil
}

func (s *fakeServer) Move(context.Context, *stoapb.MoveKeysRequest) (*stoapb.MoveKeysResponse, error) {
	return &stoapb.MoveKeysResponse{}, nil
}

func (s *fakeServer) Pin(context.Context, *stoapb.PinKeysRequest) (*stoapb.PinKeysResponse, error) {
	return &stoapb.PinKeysResponse{}, nil
}

func (s *fakeServer) Unpin(context.Context, *stoapb.UnpinKeysRequest) (*stoapb.UnpinKeysResponse, error) {
	return &stoapb.UnpinKeysResponse{}, nil
}

func (s *fakeServer) Resize(context.Context, *stoapb.ResizeRequest) (*stoapb.ResizeResponse, error) {
	return &stoapb.ResizeResponse{}, nil
}

func (s *fakeServer) Balance(_ context.Context, r *stoapb.BalanceRequest) (*stoapb.BalanceResponse, error) {
	if !r.DryRun {
		return &stoapb.BalanceResponse{Reason: "the loads are even", Before: []float64{0.5, 0.41}, After: []float64{0.5, 0.41}}, nil
	}
	return &stoapb.BalanceResponse{Reason: "it is uneven", Before: []float64{0.9, 0.1}, After: []float64{0.5, 0.5}, Moves: []*stoapb.SlotMove{
		{Slot: 3, From: 0, To: 1, Load: 0.3, Keys: 17, Prefix: []byte("/a/b/")}, {Slot: 4, From: 0, To: 1, Load: 0.1, Keys: 2},
	}}, nil
}

func (s *fakeServer) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	s.last = r
	return &pb.LeaseGrantResponse{Header: header, ID: 0x1f, TTL: r.TTL}, nil
}

func (s *fakeServer) LeaseRevoke(_ context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	s.last = r
	return &pb.LeaseRevokeResponse{Header: header}, nil
}

func (s *fakeServer) LeaseTimeToLive(_ context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	s.last = r
	if r.ID != 0x1f || s.expired.Load() {
		return &pb.LeaseTimeToLiveResponse{Header: header, ID: r.ID, TTL: -1}, nil
	}
	return &pb.LeaseTimeToLiveResponse{Header: header, ID: r.ID, TTL: 50, GrantedTTL: 60, Keys: [][]byte{[]byte("a"), []byte("b")}}, nil
}

func (s *fakeServer) LeaseLeases(context.Context, *pb.LeaseLeasesRequest) (*pb.LeaseLeasesResponse, error) {
	return &pb.LeaseLeasesResponse{Header: header, Leases: []*pb.LeaseStatus{{ID: 0x1f}, {ID: 0x20}}}, nil
}

// LeaseKeepAlive renews a lease once; then it has expired.
func (s *fakeServer) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	for ttl := int64(1); ; ttl = 0 {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		s.expired.Store(ttl == 0)
		if err := stream.Send(&pb.LeaseKeepAliveResponse{Header: header, ID: r.ID, TTL: ttl}); err != nil {
			return err
		}
	}
}

func (s *fakeServer) UserAdd(_ context.Context, r *pb.AuthUserAddRequest) (*pb.AuthUserAddResponse, error) {
	s.last = r
	return &pb.AuthUserAddResponse{Header: header}, nil
}

func (s *fakeServer) UserChangePassword(_ context.Context, r *pb.AuthUserChangePasswordRequest) (*pb.AuthUserChangePasswordResponse, error) {
	s.last = r
	return &pb.AuthUserChangePasswordResponse{Header: header}, nil
}

// Snapshot says nothing.
func (s *fakeServer) Snapshot(_ *pb.SnapshotRequest, stream pb.Maintenance_SnapshotServer) error {
	<-stream.Context().Done()
	return stream.Context().Err()
}

func startFake(t *testing.T) (*fakeServer, string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fakeServer{}
	var one sync.Mutex // request at a time
	g := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, do grpc.UnaryHandler) (any, error) {
		one.Lock()
		defer one.Unlock()
		f.metadata, _ = metadata.FromIncomingContext(ctx)
		return do(ctx, req)
	}))
	pb.RegisterKVServer(g, f)
	pb.RegisterClusterServer(g, f)
	pb.RegisterMaintenanceServer(g, f)
	pb.RegisterLeaseServer(g, f)
	pb.RegisterAuthServer(g, f)
	stoapb.RegisterPartitionsServer(g, f)
	stoapb.RegisterExtensionsServer(g, &fakeExtensions{})
	go g.Serve(ln)
	t.Cleanup(g.Stop)
	return f, ln.Addr().String()
}

func call(stdin string, env []string, args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	a := &app{in: bufio.NewReader(strings.NewReader(stdin)), out: &o, errs: &e}
	code = a.run(args, env)
	return code, o.String(), e.String()
}

func TestCommands(t *testing.T) {
	_, addr := startFake(t)
	env := []string{"STOACTL_ENDPOINTS=" + addr}
	for _, tc := range []struct{ stdin, args, want string }{
		{"", "put foo bar --prev-kv", "OK\nfoo\nbar\n"},
		{"", "get foo", "foo\nbar\n"},
		{"", "get foo --print-value-only", "bar\n"},
		{"", "get foo --hex", `\x66\x6f\x6f` + "\n" + `\x62\x61\x72` + "\n"},
		{"", "get foo -w json", `{"header":{"cluster_id":193,"member_id":161,"revision":7,"raft_term":2},"kvs":[{"key":"Zm9v","create_revision":2,"mod_revision":3,"version":2,"value":"YmFy","lease":10}],"count":1}` + "\n"},
		{"", "get foo -w fields", "\"ClusterID\" : 193\n\"MemberID\" : 161\n\"Revision\" : 7\n\"RaftTerm\" : 2\n\"Key\" : \"foo\"\n\"CreateRevision\" : 2\n\"ModRevision\" : 3\n\"Version\" : 2\n\"Value\" : \"bar\"\n\"Lease\" : 10\n\"More\" : false\n\"Count\" : 1\n"},
		{"", "del foo", "1\n"},
		{"mod(\"foo\") > \"0\"\n\nput foo \"a b\"\n\n\n", "txn", "SUCCESS\n\nOK\n\nfoo\nbar\n\n3\n"},
		{"\n\n\n", "txn -w json", `{"header":{"cluster_id":193,"member_id":161,"revision":7,"raft_term":2},"succeeded":true,"responses":[{"Response":{"response_put":{}}},{"Response":{"response_range":{"kvs":[{"key":"Zm9v","create_revision":2,"mod_revision":3,"version":2,"value":"YmFy","lease":10}]}}},{"Response":{"response_delete_range":{"deleted":3}}}]}` + "\n"},
		{"", "lease grant 60", "lease 000000000000001f granted with TTL(60s)\n"},
		{"", "lease grant 60 -w fields", "\"ClusterID\" : 193\n\"MemberID\" : 161\n\"Revision\" : 7\n\"RaftTerm\" : 2\n\"ID\" : 31\n\"TTL\" : 60\n"},
		{"", "lease revoke 1f", "lease 000000000000001f revoked\n"},
		{"", "lease timetolive 1f", "lease 000000000000001f granted with TTL(60s), remaining(50s)\n"},
		{"", "lease timetolive 1f --keys", "lease 000000000000001f granted with TTL(60s), remaining(50s), attached keys([a b])\n"},
		{"", "lease timetolive 20", "lease 0000000000000020 already expired\n"},
		{"", "lease list", "found 2 leases\n000000000000001f\n0000000000000020\n"},
		{"", "lease list --hex -w fields", "\"ClusterID\" : c1\n\"MemberID\" : a1\n\"Revision\" : 7\n\"RaftTerm\" : 2\n\"ID\" : 000000000000001f\n\"ID\" : 0000000000000020\n"},
		{"", "lease keep-alive 1f --once", "lease 000000000000001f keepalived with TTL(1)\n"},
		{"", "lease keep-alive 1f", "lease 000000000000001f keepalived with TTL(1)\nlease 000000000000001f expired or revoked.\n"},
		{"", "member list", "a1, started, n1, http://p, http://c, false\n"},
		{"", "member list -w json --hex", `{"header":{"cluster_id":"c1","member_id":"a1","revision":7,"raft_term":2},"members":[{"ID":"a1","name":"n1","peerURLs":["http://p"],"clientURLs":["http://c"]}]}` + "\n"},
		{"", "endpoint status", addr + ", a1, 3.7.3, , 20 kB, 16 kB, 20%, 2.1 GB, true, false, 2, 9, 9, , , false\n"},
		{"", "partition list", "0, a1, 2, 0, 0, 0, 0, 512, 0, 0 B, 0%, -, -\n1, a1, 2, 0, 0, 0, 0, 512, 3, 20 kB, 43%, \"/p/a/\" 40% \"/p/b\" 2%, \"/p/\"\n"},
		{"", "partition move /a/b/ --to 1", "\"/a/b/\" moves to partition 1\n"},
		{"", "partition pin /a/ --to 0", "\"/a/\" pinned to partition 0\n"},
		{"", "partition balance", "the loads are even\nload: 50%, 41%\n"},
		{"", "partition balance --dry-run", "it is uneven\nload: 90% → 50%, 10% → 50%\n" +
			"slot 3 would move from partition 0 to 1: load 30.00%, 17 keys, hottest \"/a/b/\"\nslot 4 would move from partition 0 to 1: load 10.00%, 2 keys\n"},
		{"", "partition unpin /a/", "\"/a/\" unpinned\n"},
		{"", "partition grow 16", "16 partitions\n"},
		{"", "partition shrink 1", "1 partition\n"},
		{"", "member list -w table", "" +
			"┌────┬─────────┬──────┬────────────┬──────────────┬────────────┐\n" +
			"│ ID │ STATUS  │ NAME │ PEER ADDRS │ CLIENT ADDRS │ IS LEARNER │\n" +
			"├────┼─────────┼──────┼────────────┼──────────────┼────────────┤\n" +
			"│ a1 │ started │   n1 │   http://p │     http://c │      false │\n" +
			"└────┴─────────┴──────┴────────────┴──────────────┴────────────┘\n"},
	} {
		code, out, errs := call(tc.stdin, env, strings.Fields(tc.args)...)
		require.Zero(t, code, "%s: %s", tc.args, errs)
		require.Equal(t, tc.want, out, tc.args)
	}
}

func TestRequestsFollowTheFlags(t *testing.T) {
	f, addr := startFake(t)
	ask := func(stdin, args string) any {
		code, _, errs := call(stdin, nil, append(strings.Fields(args), "--endpoints="+addr)...)
		require.Zero(t, code, errs)
		return f.last
	}
	r := ask("", "get a --prefix --limit 3 --rev 5 --order descend --sort-by modify --consistency s --keys-only --min-mod-rev 2").(*pb.RangeRequest)
	require.Equal(t, "b", string(r.RangeEnd))
	require.EqualValues(t, 3, r.Limit)
	require.EqualValues(t, 5, r.Revision)
	require.Equal(t, pb.RangeRequest_DESCEND, r.SortOrder)
	require.Equal(t, pb.RangeRequest_MOD, r.SortTarget)
	require.True(t, r.Serializable && r.KeysOnly)
	require.EqualValues(t, 2, r.MinModRevision)

	p := ask("from stdin\n", "put k --lease 1f --ignore-lease=false").(*pb.PutRequest)
	require.Equal(t, "from stdin\n", string(p.Value))
	require.EqualValues(t, 0x1f, p.Lease)

	d := ask("", "del a b --range --prev-kv").(*pb.DeleteRangeRequest)
	require.Equal(t, "b", string(d.RangeEnd))
	require.True(t, d.PrevKv)

	x := ask("val(\"a\") = \"1\"\nlease(\"b\") != \"ff\"\n\nput a 2 --lease=a\nget --prefix /x\n\ndel 'q r' --prev-kv\n\n", "txn").(*pb.TxnRequest)
	require.Len(t, x.Compare, 2)
	require.EqualValues(t, 255, x.Compare[1].GetLease())
	require.EqualValues(t, 10, x.Success[0].GetRequestPut().Lease)
	require.Equal(t, "/y", string(x.Success[1].GetRequestRange().RangeEnd))
	require.Equal(t, "q r", string(x.Failure[0].GetRequestDeleteRange().Key))
}

func TestUnhealthyEndpoints(t *testing.T) {
	_, addr := startFake(t)
	code, _, errs := call("", nil, "endpoint", "health", "--endpoints", addr)
	require.Equal(t, 1, code)
	require.Contains(t, errs, addr+" is unhealthy: failed to commit proposal: Active Alarm(s): NOSPACE")
	code, out, _ := call("", nil, "endpoint", "health", "-w", "json", "--endpoints", "127.0.0.1:1", "--command-timeout", "200ms", "--dial-timeout", "100ms")
	require.Equal(t, 1, code)
	require.Contains(t, out, `"endpoint":"127.0.0.1:1","health":false`)
}

// Scripts, and etcd's own tests, look for etcdctl's text.
func TestTheTextOfATimeout(t *testing.T) {
	for _, command := range []string{"get", "del"} {
		code, _, errs := call("", nil, command, "a", "--endpoints=127.0.0.1:1", "--command-timeout=2s")
		require.Equal(t, 1, code)
		require.Contains(t, errs, "no answer from 127.0.0.1:1: ")
		require.Contains(t, errs, "connection refused: context deadline exceeded\n")
	}
}

func TestMistakes(t *testing.T) {
	for _, tc := range []struct {
		stdin, args, want string
		code              int
	}{
		{"", "get", "one argument as key", exitBadArgs},
		{"", "get a b --prefix", "too many arguments", exitBadArgs},
		{"", "get a --prefix --from-key", "--from-key", exitBadArgs},
		{"", "get a --order up", "bad sort order", exitBadFeature},
		{"", "get a --consistency x", "consistency", exitBadFeature},
		{"", "get a --count-only", "--count-only", exitBadArgs},
		{"", "put a b --ignore-value", "--ignore-value", exitBadArgs},
		{"", "put a b --lease xyz", "bad lease ID", exitBadArgs},
		{"", "del", "one argument as key", exitBadArgs},
		{"", "migrate --to=x", "--from is missing", exitBadArgs},
		{"", "migrate --from=x", "--to is missing", exitBadArgs},
		{"", "migrate --from=x --to=y --max-txn-ops=1", "--max-txn-ops=1", exitBadArgs},
		{"", "migrate --from=x --to=y --to-password=p", "--to-password is given, but no --to-user", exitBadArgs},
		{"", "migrate --from=x --to=y -w table", "--write-out=table", exitBadFeature},
		{"", "migrate --from=127.0.0.1:1 --to=127.0.0.1:1 --command-timeout=100ms", "--from: no answer from 127.0.0.1:1", exitBadConnection},
		{"mod(foo) > 0\n", "txn", "malformed comparison", exitInvalidInput},
		{"size(\"foo\") > \"0\"\n", "txn", "unknown target", exitInvalidInput},
		{"mod(\"foo\") >= \"0\"\n", "txn", "unknown operator", exitInvalidInput},
		{"\nincr a\n", "txn", "want put, get or del", exitInvalidInput},
		{"\nput a\n", "txn", "needs a key and a value", exitBadArgs},
		{"\nget a --nope\n", "txn", "nope", exitInvalidInput},
		{"", "nonsense", "unknown command", 1},
		{"", "member nonsense", `unknown command "nonsense" for "stoactl member"`, 1},
		{"", "partition grow", "usage: stoactl partition grow <partitions>", exitBadArgs},
		{"", "partition grow x", "bad number of partitions \"x\"", exitBadArgs},
		{"", "partition grow 4294967297", "bad number of partitions \"4294967297\"", exitBadArgs}, // which isn't 1
		{"", "partition move /a/b/", "partition move command requires --to", exitBadArgs},
		{"", "partition pin --to 1", "usage: stoactl partition pin <prefix> --to N", exitBadArgs},
		{"", "partition unpin", "usage: stoactl partition unpin <prefix>", exitBadArgs},
		{"", "top --interval 1ms", "--interval must be at least 100ms", exitBadArgs},
		{"", "top -n=-1", "--iterations must not be negative", exitBadArgs},
		{"", "top -w table", "--write-out=table", exitBadFeature},
		{"", "top extra", "takes no arguments", exitBadArgs},
		{"", "put a", "stdin, which is empty", exitBadArgs},
		{"", "get a -w bad", "unsupported output format", exitBadFeature},
		{"", "get a --user root", "no password", exitBadArgs},
		{"", "txn", "the input ends", exitInvalidInput},
		{"\n\nput a 1\n", "txn", "within the failure requests", exitInvalidInput},
		{"", "extension ack", "usage: stoactl extension ack", exitBadArgs},
		{"", "member list extra", "takes no arguments", exitBadArgs},
		{"", "watch", "watch needs a key", exitBadArgs},
		{"", "lease grant", "TTL", exitBadArgs},
		{"", "lease grant soon", "bad TTL", exitBadArgs},
		{"", "lease revoke", "lease ID", exitBadArgs},
		{"", "lease timetolive xyz", "bad lease ID", exitBadArgs},
	} {
		code, _, errs := call(tc.stdin, nil, strings.Fields(tc.args)...)
		require.Equal(t, tc.code, code, "%s: %s", tc.args, errs)
		require.Contains(t, errs, tc.want, tc.args)
	}
}

func TestEnvironment(t *testing.T) {
	_, addr := startFake(t)
	code, out, _ := call("", []string{"ETCDCTL_ENDPOINTS=127.0.0.1:1", "STOACTL_ENDPOINTS=" + addr, "ETCDCTL_WRITE_OUT=json"}, "del", "a")
	require.Zero(t, code)
	require.Contains(t, out, `"deleted":1`)
	// The command line replaces the list of the environment.
	code, _, errs := call("", []string{"ETCDCTL_ENDPOINTS=127.0.0.1:1,127.0.0.1:2"}, "del", "a", "--endpoints", addr)
	require.Zero(t, code, errs)
	code, _, errs = call("", nil, "del", "a", "--endpoints", " "+addr+" ")
	require.Zero(t, code, errs)
	_, _, errs = call("", nil, "migrate", "--from", " 127.0.0.1:1", "--to", addr, "--command-timeout=100ms")
	require.Contains(t, errs, "--from: no answer from 127.0.0.1:1")
	code, _, errs = call("", []string{"STOACTL_DIAL_TIMEOUT=soon"}, "version")
	require.Equal(t, exitBadArgs, code)
	require.Contains(t, errs, "STOACTL_DIAL_TIMEOUT")
}

// The time of the environment is given as by the flag: without one a snapshot may take any.
func TestTimeoutOfTheEnvironment(t *testing.T) {
	_, addr := startFake(t)
	done := make(chan string, 1)
	go func() {
		env := []string{"ETCDCTL_ENDPOINTS=" + addr, "ETCDCTL_COMMAND_TIMEOUT=200ms"}
		_, _, errs := call("", env, "snapshot", "save", filepath.Join(t.TempDir(), "file"))
		done <- errs
	}()
	select {
	case errs := <-done:
		require.Contains(t, errs, "deadline")
	case <-time.After(20 * time.Second):
		t.Fatal("it has no limit")
	}
}

// Servers that were found by DNS have to have a certificate for the domain that was asked for, as with etcdctl.
func TestDiscoveredServersAreVerified(t *testing.T) {
	for _, secure := range []bool{true, false} {
		a := &app{o: globals{discovery: "example.org", insecureDiscovery: !secure, plain: true}}
		cfg, err := a.clientConfig(&connection{endpoints: []string{"https://spoofed.example.com:2379"}})
		require.NoError(t, err)
		if secure {
			require.NotNil(t, cfg.TLS)
			require.Equal(t, "example.org", cfg.TLS.ServerName)
		} else {
			require.Nil(t, cfg.TLS, "as without discovery")
		}
	}
}

// What --to-user says is all that the target gets to know.
func TestUserOfAMigrationsTarget(t *testing.T) {
	a := &app{o: globals{user: "s", password: "p", token: "of the source"}}
	auth, err := (&migrateFlags{user: "t:q"}).target(a).authConfig()
	require.NoError(t, err)
	require.Equal(t, clientv3.AuthConfig{Username: "t", Password: "q"}, *auth)
	auth, err = (&migrateFlags{}).target(a).authConfig()
	require.NoError(t, err)
	require.Equal(t, "of the source", auth.Token, "it is for both")
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 20480: "20 kB", 1500: "1.5 kB", 2 << 30: "2.1 GB", 790528: "790 kB", 9960: "10 kB"} {
		require.Equal(t, want, bytesOf(n))
	}
}

func FuzzTxnLines(f *testing.F) {
	f.Add(`mod("a") > "0"`)
	f.Add(`put "a\"b" 'c d' --lease=1`)
	f.Add(`get --prefix ""`)
	f.Fuzz(func(_ *testing.T, line string) {
		_, _ = parseCompare(line)
		_, _ = parseOp(line)
	})
}
