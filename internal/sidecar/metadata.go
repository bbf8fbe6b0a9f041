package sidecar

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"
)

// hasToken reports whether a call brings credentials of its own.
func hasToken(md metadata.MD) bool {
	return len(md[rpctypes.TokenFieldNameGRPC]) > 0 || len(md[rpctypes.TokenFieldNameSwagger]) > 0
}

// outgoing is the context of a forwarded call: the client's metadata, deadline and end.
func outgoing(ctx context.Context, md metadata.MD) context.Context {
	return metadata.NewOutgoingContext(ctx, passed(md))
}

// passed is the metadata without what belongs to one connection.
func passed(md metadata.MD) metadata.MD {
	out := make(metadata.MD, len(md))
	for name, values := range md {
		if !ofConnection(name) {
			out[name] = values
		}
	}
	return out
}

// ofConnection tells names that HTTP/2 and gRPC set themselves.
func ofConnection(name string) bool {
	switch name {
	case "content-type", "user-agent", "te", "connection", "host":
		return true
	case "grpc-trace-bin", "grpc-tags-bin": // these are an application's
		return false
	}
	return strings.HasPrefix(name, ":") || strings.HasPrefix(name, "grpc-")
}
