package differential

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/test/process"
)

// side is one of the two clusters, with a connection to each of its servers.
type side struct {
	name    string
	cluster *process.Cluster
	conns   []*grpc.ClientConn
	between *process.Server // a sidecar, or nil
	user    string          // who sends the requests; "" has no token
	tokens  map[string]string
}

func newSide(name string, c *process.Cluster) (*side, error) {
	s := &side{name: name, cluster: c, tokens: map[string]string{}}
	return s, s.connect(c.Endpoints())
}

func (s *side) connect(urls []string) error {
	for _, url := range urls {
		conn, err := grpc.NewClient(strings.TrimPrefix(url, "http://"),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
		if err != nil {
			return fmt.Errorf("connecting to %s: %w", url, err)
		}
		s.conns = append(s.conns, conn)
	}
	return nil
}

// through has all requests go through a sidecar from now on.
func (s *side) through(between *process.Server) error {
	for _, c := range s.conns {
		c.Close()
	}
	s.conns, s.between = nil, between
	return s.connect([]string{between.ClientURL})
}

// directly has all requests go to the servers again.
func (s *side) directly() error {
	for _, c := range s.conns {
		c.Close()
	}
	s.conns = nil
	return s.connect(s.cluster.Endpoints())
}

func (s *side) close() {
	for _, c := range s.conns {
		c.Close()
	}
	if s.between != nil {
		_ = s.between.Kill()
	}
	s.cluster.Close()
}

// answer is what a server said: a message or an error.
type answer struct {
	msg proto.Message
	err string // code and text
}

func (a answer) String() string {
	if a.err != "" {
		return "error " + a.err
	}
	return fmt.Sprintf("%T{%v}", a.msg, a.msg)
}

// call sends one request to one server.
func (s *side) call(server int, req proto.Message) answer {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if token := s.tokens[s.user]; token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "token", token)
	}
	msg, err := send(ctx, s.conns[server%len(s.conns)], req)
	if err != nil {
		st := status.Convert(err)
		return answer{err: fmt.Sprintf("%v: %s", st.Code(), st.Message())}
	}
	if login, ok := req.(*pb.AuthenticateRequest); ok {
		s.tokens[login.Name] = msg.(*pb.AuthenticateResponse).Token
	}
	return answer{msg: msg}
}

// streamed asks for a Range by RangeStream.
type streamed struct{ *pb.RangeRequest }

func send(ctx context.Context, conn *grpc.ClientConn, req proto.Message) (proto.Message, error) {
	kv, lease := pb.NewKVClient(conn), pb.NewLeaseClient(conn)
	switch r := req.(type) {
	case *pb.RangeRequest:
		return kv.Range(ctx, r)
	case streamed:
		return sendStreamed(ctx, kv, r.RangeRequest)
	case *pb.PutRequest:
		return kv.Put(ctx, r)
	case *pb.DeleteRangeRequest:
		return kv.DeleteRange(ctx, r)
	case *pb.TxnRequest:
		return kv.Txn(ctx, r)
	case *pb.CompactionRequest:
		return kv.Compact(ctx, r)
	case *pb.LeaseGrantRequest:
		return lease.LeaseGrant(ctx, r)
	case *pb.LeaseRevokeRequest:
		return lease.LeaseRevoke(ctx, r)
	case *pb.LeaseTimeToLiveRequest:
		return lease.LeaseTimeToLive(ctx, r)
	case *pb.LeaseLeasesRequest:
		return lease.LeaseLeases(ctx, r)
	case *pb.LeaseKeepAliveRequest:
		stream, err := lease.LeaseKeepAlive(ctx)
		if err != nil {
			return nil, err
		}
		if err := stream.Send(r); err != nil {
			return nil, err
		}
		defer stream.CloseSend()
		return stream.Recv()
	case *pb.DefragmentRequest:
		return pb.NewMaintenanceClient(conn).Defragment(ctx, r)
	case *pb.HashKVRequest:
		return pb.NewMaintenanceClient(conn).HashKV(ctx, r)
	case opened:
		return sendOpened(ctx, conn, r.WatchRequest)
	}
	return sendAuth(ctx, pb.NewAuthClient(conn), req)
}

func sendAuth(ctx context.Context, a pb.AuthClient, req proto.Message) (proto.Message, error) {
	switch r := req.(type) {
	case *pb.AuthenticateRequest:
		return a.Authenticate(ctx, r)
	case *pb.AuthStatusRequest:
		return a.AuthStatus(ctx, r)
	case *pb.AuthEnableRequest:
		return a.AuthEnable(ctx, r)
	case *pb.AuthDisableRequest:
		return a.AuthDisable(ctx, r)
	case *pb.AuthUserAddRequest:
		return a.UserAdd(ctx, r)
	case *pb.AuthUserGetRequest:
		return a.UserGet(ctx, r)
	case *pb.AuthUserListRequest:
		return a.UserList(ctx, r)
	case *pb.AuthUserDeleteRequest:
		return a.UserDelete(ctx, r)
	case *pb.AuthUserChangePasswordRequest:
		return a.UserChangePassword(ctx, r)
	case *pb.AuthUserGrantRoleRequest:
		return a.UserGrantRole(ctx, r)
	case *pb.AuthUserRevokeRoleRequest:
		return a.UserRevokeRole(ctx, r)
	case *pb.AuthRoleAddRequest:
		return a.RoleAdd(ctx, r)
	case *pb.AuthRoleGetRequest:
		return a.RoleGet(ctx, r)
	case *pb.AuthRoleListRequest:
		return a.RoleList(ctx, r)
	case *pb.AuthRoleDeleteRequest:
		return a.RoleDelete(ctx, r)
	case *pb.AuthRoleGrantPermissionRequest:
		return a.RoleGrantPermission(ctx, r)
	case *pb.AuthRoleRevokePermissionRequest:
		return a.RoleRevokePermission(ctx, r)
	}
	return nil, fmt.Errorf("no call takes a %T", req)
}

// opened asks for a watch, of which the answer counts, and no event.
type opened struct{ *pb.WatchRequest }

func sendOpened(ctx context.Context, conn *grpc.ClientConn, r *pb.WatchRequest) (proto.Message, error) {
	stream, err := pb.NewWatchClient(conn).Watch(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(r); err != nil {
		return nil, err
	}
	return stream.Recv()
}

// sendStreamed puts the chunks of a RangeStream together; where it is cut into chunks
// is the server's business.
func sendStreamed(ctx context.Context, kv pb.KVClient, r *pb.RangeRequest) (proto.Message, error) {
	stream, err := kv.RangeStream(ctx, r)
	if err != nil {
		return nil, err
	}
	whole := &pb.RangeResponse{}
	for {
		chunk, err := stream.Recv()
		if err == io.EOF {
			return whole, nil
		}
		if err != nil {
			return nil, err
		}
		proto.Merge(whole, chunk.RangeResponse)
	}
}
