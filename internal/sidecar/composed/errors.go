package composed

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/stoa-kv/stoa/client/compose"
)

var (
	errToken = status.Error(codes.Unimplemented,
		"stoa sidecar: with --compose, users are those in its file: connect without a user name")
	errNoConnection = status.Error(codes.Internal, "stoa sidecar: with --compose, a call needs an HTTP/2 connection")
	errLeaseID      = status.Error(codes.Unimplemented,
		"stoa sidecar: with --compose, a lease can't be granted under a given ID: it is free in one cluster and not in another")
	errTooManyClients = status.Error(codes.ResourceExhausted, "stoa sidecar: too many connections (--max-clients)")
	errProgress       = status.Error(codes.Unimplemented,
		"stoa sidecar: with --compose, progress can't be asked for: a stream of watches has no common revision. Use progress_notify")
)

// refuse answers all methods that a composition doesn't have.
func refuse(_ any, st grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(st)
	return status.Errorf(codes.Unimplemented, "stoa sidecar: with --compose, %s is not served: it concerns one cluster; ask that cluster", method)
}

// asStatus makes a gRPC error of one of a composition's.
func asStatus(err error) error {
	var cut *compose.ClusterError
	var known rpctypes.EtcdError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, compose.ErrSilent): // which may be for the deadline that a client of the composition has for a cluster
		return status.Error(codes.Unavailable, err.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		if code := status.FromContextError(err).Code(); code != codes.Unknown {
			return status.Error(code, err.Error())
		}
		return status.Error(codes.Canceled, err.Error())
	case errors.As(err, &cut), errors.Is(err, compose.ErrClosed):
		return status.Error(codes.Unavailable, err.Error())
	case errors.As(err, &known):
		return status.Error(known.Code(), known.Error())
	case errors.Is(err, compose.ErrNoRoute), errors.Is(err, compose.ErrReserved):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, compose.ErrSpans), errors.Is(err, compose.ErrNotOverSpan), errors.Is(err, compose.ErrTransactions):
		return status.Error(codes.Unimplemented, err.Error())
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	return status.Error(codes.Unknown, err.Error())
}

// isRefusal reports that a cluster has answered, though not as asked.
func isRefusal(err error) bool {
	var cut *compose.ClusterError
	var known rpctypes.EtcdError
	return err != nil && !errors.As(err, &cut) && errors.As(err, &known)
}
