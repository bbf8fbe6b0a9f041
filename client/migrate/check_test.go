package migrate

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/client/mirror"
	"github.com/stoa-kv/stoa/client/mirror/cluster"
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

// to is such a target.
func to(t *testing.T, code codes.Code) *clientv3.Client {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := grpc.NewServer()
	stoapb.RegisterPartitionsServer(g, showing{code: code})
	go g.Serve(ln) //nolint:errcheck // it ends with the test
	t.Cleanup(g.Stop)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{ln.Addr().String()}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// Extensions are copied to a target that is known not to run them, and to no other.
func TestExtensionsAreRefused(t *testing.T) {
	for code, want := range map[codes.Code]error{
		codes.OK: ErrUnfit, codes.PermissionDenied: ErrUnfit, codes.Unimplemented: nil,
		codes.Unauthenticated: status.Error(codes.Unauthenticated, "no"),
	} {
		from := clientv3.NewCtxClient(t.Context())
		from.KV = extended{}
		m := &migration{Config: Config{From: from, To: to(t, code)}}
		require.ErrorIs(t, m.checkExtensions(t.Context()), want, code)
	}
}

// sides are a source and a target in memory. The source's only change is that it gets an extension, which it may lose again at once.
type sides struct {
	clientv3.KV
	lost    bool
	mark    []byte
	written []string
}

func (s *sides) Get(context.Context, string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	r := &clientv3.GetResponse{Header: &pb.ResponseHeader{}}
	if !s.lost {
		r.Kvs = []*mvccpb.KeyValue{{Key: []byte(extensions + "e")}}
	}
	return r, nil
}

func (*sides) ID(context.Context) (uint64, error)      { return 1, nil }
func (*sides) Revision(context.Context) (int64, error) { return 7, nil }
func (*sides) Page(context.Context, []byte, int64) ([]mirror.KV, []byte, error) {
	return nil, nil, nil
}
func (s *sides) Changes(_ context.Context, from int64) mirror.Feed { return &changes{from: from} }

// changes are those from a revision on, through 9.
type changes struct{ from int64 }

func (f *changes) Next(context.Context) (all []mirror.Change, through int64, err error) {
	if f.from <= 8 {
		all = append(all, mirror.Change{Revision: 8, Key: []byte(extensions + "e")})
	}
	f.from = 10
	return all, 9, nil
}
func (*changes) Ask(context.Context) error { return nil }
func (*changes) Close()                    {}

func (s *sides) Mark(context.Context) ([]byte, int64, error) { return s.mark, int64(len(s.mark)), nil }

func (s *sides) Commit(_ context.Context, t mirror.Txn) (mirror.Result, error) {
	for _, op := range t.Ops {
		s.written = append(s.written, string(op.Key))
	}
	s.mark = t.Mark
	return mirror.Result{Revision: int64(len(t.Mark))}, nil
}

// Nor are those copied that the source gets later.
func TestExtensionsOfLater(t *testing.T) {
	for _, c := range []struct {
		code   codes.Code
		lost   bool
		want   error
		copied bool
	}{
		{codes.OK, false, ErrUnfit, false}, {codes.OK, true, nil, false}, {codes.Unimplemented, false, nil, true},
	} {
		s := &sides{lost: c.lost}
		from := clientv3.NewCtxClient(t.Context())
		from.KV = s
		m := &migration{Config: Config{From: from, To: to(t, c.code), Quiet: time.Hour}, total: 1, told: time.Now().Add(time.Hour)}
		var err error
		m.e, err = mirror.Open(t.Context(), mirror.Config{Source: s, Target: guarded{s, m}, Owner: "o", Limits: cluster.DefaultLimits})
		require.NoError(t, err)
		for range 2 { // a copy, and what came beside it
			require.NoError(t, err)
			_, _, err = m.step(t.Context())
		}
		require.ErrorIs(t, err, c.want)
		require.Equal(t, c.copied, len(s.written) > 0)
	}
}
