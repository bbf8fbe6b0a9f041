package engine

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// metadataClient is what a call or stream is named by, a session's too.
const metadataClient = "stoa-client-id"

const maxClientID = 256

// Identify gives a client of etcd's package the name by which extensions know
// it, in all its calls, in its watches, and in sessions that are opened over it
// (Of):
//
//	clientv3.New(clientv3.Config{Endpoints: …, DialOptions: client.Identify("worker-7")})
//
// Config.ClientID does the same for a client of this package. An ID has up to
// 256 characters of printable ASCII; with another one every call fails with the
// gRPC code InvalidArgument. The empty one is that of all unnamed clients:
// "anonymous".
func Identify(id string) []grpc.DialOption {
	if id == "" {
		return nil
	}
	err := CheckClientID(id)
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if err != nil {
				return status.Error(codes.InvalidArgument, err.Error())
			}
			return invoke(metadata.AppendToOutgoingContext(ctx, metadataClient, id), method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if err != nil {
				return nil, status.Error(codes.InvalidArgument, err.Error())
			}
			return open(metadata.AppendToOutgoingContext(ctx, metadataClient, id), desc, cc, method, opts...)
		}),
	}
}

// CheckClientID refuses names that gRPC or a server would refuse in every call,
// or ignore.
func CheckClientID(id string) error {
	if len(id) > maxClientID {
		return fmt.Errorf("client: a ClientID of %d bytes; it has at most %d", len(id), maxClientID)
	}
	for _, c := range []byte(id) {
		if c < ' ' || c > '~' {
			return fmt.Errorf("client: ClientID %q: it consists of printable ASCII characters", id)
		}
	}
	return nil
}
