package migrate

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// extended is a source with an extension.
type extended struct{ clientv3.KV }

func (extended) Get(_ context.Context, key string, _ ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return &clientv3.GetResponse{Header: &pb.ResponseHeader{}, Kvs: []*mvccpb.KeyValue{{Key: []byte(key + "locked")}}}, nil
}

// showing is a target that answers with an error when it is asked for its partitions.
type showing struct {
	stoapb.UnimplementedPartitionsServer
	code codes.Code
}

func (s showing) List(context.Context, *stoapb.ListPartitionsRequest) (*stoapb.ListPartitionsResponse, error) {
	return &stoapb.ListPartitionsResponse{}, status.Error(s.code, "no")
}

// Extensions are copied to a target that is known not to run them, and to no other.
func TestExtensionsAreRefused(t *testing.T) {
	for code, want := range map[codes.Code]error{
		codes.OK: ErrUnfit, codes.PermissionDenied: ErrUnfit, codes.Unimplemented: nil,
		codes.Unauthenticated: status.Error(codes.Unauthenticated, "no"),
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		g := grpc.NewServer()
		stoapb.RegisterPartitionsServer(g, showing{code: code})
		go g.Serve(ln) //nolint:errcheck // it ends with the test
		t.Cleanup(g.Stop)
		to, err := clientv3.New(clientv3.Config{Endpoints: []string{ln.Addr().String()}, Logger: zap.NewNop()})
		require.NoError(t, err)
		t.Cleanup(func() { to.Close() })
		from := clientv3.NewCtxClient(t.Context())
		from.KV = extended{}
		m := &migration{Config: Config{From: from, To: to}}
		require.ErrorIs(t, m.checkExtensions(t.Context()), want, code)
	}
}
