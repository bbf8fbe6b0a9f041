package main

import (
	"context"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// The metadata by which a client says who it is.
const (
	metadataClient = "stoa-client-id"
	metadataLease  = "stoa-lease"
)

// callerOptions put --client-id and --lease into every request.
func (a *app) callerOptions() ([]grpc.DialOption, error) {
	var pairs []string
	if a.o.client != "" {
		pairs = append(pairs, metadataClient, a.o.client)
	}
	if a.o.lease != "" {
		if _, err := leaseNamed(a.o.lease); err != nil {
			return nil, err
		}
		pairs = append(pairs, metadataLease, a.o.lease)
	}
	if len(pairs) == 0 {
		return nil, nil
	}
	say := func(ctx context.Context) context.Context { return metadata.AppendToOutgoingContext(ctx, pairs...) }
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, c *grpc.ClientConn, do grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return do(say(ctx), method, req, reply, c, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, c *grpc.ClientConn, method string, do grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return do(say(ctx), d, c, method, opts...)
		}),
	}, nil
}

// leaseNamed reads a lease's ID as people write it.
func leaseNamed(s string) (int64, error) {
	id, err := strconv.ParseInt(s, 16, 64)
	if err != nil {
		return 0, badArgs("bad lease ID (%w), expecting ID in Hex", err)
	}
	return id, nil
}
