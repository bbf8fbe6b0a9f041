package sidecar

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A question asks the cluster, with one linearizable read for all that wait, for its revision, and
// whether there are extensions, which may handle watches: those must not be coalesced.
type question struct {
	up *upstream
	joined[cluster]
}

func newQuestion(up *upstream) *question {
	q := &question{up: up}
	q.joined.read = q.read
	return q
}

// cluster is what the question tells.
type cluster struct {
	header   *pb.ResponseHeader
	coalesce bool
}

// questionTimeout bounds a question: a watch doesn't wait for a cluster without a quorum for longer
// than any request.
const questionTimeout = requestTimeout

// registry is where extensions are registered.
func registry() *pb.RangeRequest {
	return &pb.RangeRequest{Key: extensions, RangeEnd: []byte("/em0"), CountOnly: true}
}

// read asks once. The sidecar's user may not be allowed to see extensions: then there may be some.
func (q *question) read() (cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), questionTimeout)
	defer cancel()
	r, err := q.get(ctx, registry())
	if errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied) || errors.Is(rpctypes.Error(err), rpctypes.ErrUserEmpty) {
		return cluster{}, nil
	}
	if err != nil {
		return cluster{}, err
	}
	return cluster{r.Header, r.Count == 0}, nil
}

// compacted tells whether a revision is.
func (q *question) compacted(ctx context.Context, rev int64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	r := registry()
	r.Revision = rev
	_, err := q.get(ctx, r)
	if errors.Is(rpctypes.Error(err), rpctypes.ErrCompacted) {
		return true, nil
	}
	return false, err
}

func (q *question) get(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	conn, err := q.up.conn(false)
	if err != nil {
		return nil, err
	}
	out, err := pb.NewKVClient(conn).Range(ctx, r)
	for pause := 10 * time.Millisecond; status.Code(err) == codes.Unavailable && rest(ctx, pause); pause *= 2 {
		out, err = pb.NewKVClient(conn).Range(ctx, r)
	}
	return out, err
}

func unavailable(err error) error { return status.Error(codes.Unavailable, err.Error()) }
