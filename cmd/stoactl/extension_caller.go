package main

import (
	"context"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/stoa-kv/stoa/client"
)

// metadataLease names the lease that a request comes with.
const metadataLease = "stoa-lease"

// callerOptions put --client-id and --lease into every request.
func (a *app) callerOptions() ([]grpc.DialOption, error) {
	options := client.Identify(a.o.client)
	if a.o.lease == "" {
		return options, nil
	}
	if _, err := leaseNamed(a.o.lease); err != nil {
		return nil, err
	}
	withLease := func(ctx context.Context) context.Context {
		return metadata.AppendToOutgoingContext(ctx, metadataLease, a.o.lease)
	}
	return append(options,
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, c *grpc.ClientConn, do grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return do(withLease(ctx), method, req, reply, c, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, c *grpc.ClientConn, method string, do grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return do(withLease(ctx), d, c, method, opts...)
		})), nil
}

// leaseNamed parses a lease's ID.
func leaseNamed(s string) (int64, error) {
	id, err := strconv.ParseInt(s, 16, 64)
	if err != nil {
		return 0, badArgs("bad lease ID (%w), expecting ID in Hex", err)
	}
	return id, nil
}
