package cluster

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/client/mirror"
)

// retryPause is between a failed request and the next.
const retryPause = 200 * time.Millisecond

// MarkOps is how many operations of a transaction the mark takes.
const MarkOps = 1

// DefaultLimits are for clusters with the default --max-txn-ops (128) and
// --max-request-bytes (1.5 MiB).
var DefaultLimits = mirror.Limits{Ops: 128 - MarkOps, Bytes: 1 << 20}

// Transient reports errors that pass by themselves: no connection, no leader, a timeout,
// too many requests.
func Transient(err error) bool {
	if errors.Is(err, errEnded) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, rpctypes.ErrTooManyRequests) {
		return true
	}
	var e rpctypes.EtcdError
	code := status.Code(err)
	if errors.As(err, &e) {
		code = e.Code()
	}
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

// Retry returns a mirror.Config.Retry that repeats transient errors until the context ends,
// and reports each.
func Retry(report func(error)) func(context.Context, error) bool {
	return func(ctx context.Context, err error) bool {
		if !Transient(err) || ctx.Err() != nil {
			return false
		}
		if report != nil {
			report(err)
		}
		select {
		case <-time.After(retryPause):
			return true
		case <-ctx.Done():
			return false
		}
	}
}
