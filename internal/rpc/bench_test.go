package rpc

import (
	"context"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/kvwire"
)

// instant is a node that answers at once.
type instant struct{ Node }

func (instant) Put(context.Context, *pb.PutRequest) (*pb.PutResponse, error) {
	return &pb.PutResponse{Header: &pb.ResponseHeader{Revision: 5}}, nil
}

func (instant) Range(context.Context, *pb.RangeRequest) (*kvwire.RangeResponse, error) {
	return &kvwire.RangeResponse{Header: &pb.ResponseHeader{Revision: 5}, Kvs: []kvwire.KeyValue{kvwire.Make([]byte("a"), nil, kvwire.Fields{})}, Count: 1}, nil
}

func (instant) IsLearner() bool   { return false }
func (instant) Fenced() bool      { return false }
func (instant) ClusterID() uint64 { return 1 }
func (instant) MemberID() uint64  { return 2 }
func (instant) RaftTerm() uint64  { return 3 }
func (instant) Leader() uint64    { return 2 }
func (instant) Revision() int64   { return 5 }

// BenchmarkHandler is what this package adds to a call, without grpc's own
// work and the request's decoding: wrapped as it is served, bare, and as it
// would be with the same two concerns as interceptors.
func BenchmarkHandler(b *testing.B) {
	s := NewServer(instant{}, Options{})
	defer s.Close()
	impl := &kvServer{header: header{instant{}}, kv: instant{}, maxOps: 128}
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("hasleader", "true", "user-agent", "x", "client-api-version", "3.7"))
	pass := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		return h(ctx, req)
	}
	chain := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		return pass(ctx, req, info, func(ctx context.Context, req any) (any, error) { return pass(ctx, req, info, h) })
	}
	for _, m := range kvService().Methods {
		var body proto.Message
		switch m.MethodName {
		case "Put":
			body = &pb.PutRequest{Key: []byte("a"), Value: make([]byte, 256)}
		case "Range":
			body = &pb.RangeRequest{Key: []byte("a")}
		default:
			continue
		}
		dec := func(v any) error {
			if c, ok := v.(*capture); ok { // as codec does
				v = c.req
			}
			switch v := v.(type) {
			case *pb.PutRequest:
				v.Key = body.(*pb.PutRequest).Key
			case *pb.RangeRequest:
				v.Key = body.(*pb.RangeRequest).Key
			}
			return nil
		}
		run := func(name string, h unaryHandler, i grpc.UnaryServerInterceptor) {
			b.Run(m.MethodName+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := h(impl, ctx, dec, i); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("bare", m.Handler, nil)
		run("wrapped", s.wrapUnary(m.Handler, s.calls.of("etcdserverpb.KV", m.MethodName, "unary")), nil)
		run("intercepted", m.Handler, chain)
	}
}
