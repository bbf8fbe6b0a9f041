package sidecar

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// healthy is for /health: as at an etcd server, a linearizable read, that of the cluster.
func (s *Server) healthy(ctx context.Context) error { return s.probe(ctx, false) }

// ready is for /readyz: whether a member is reachable. A cluster without a quorum still answers
// serializable reads, and is no reason to stop an application.
func (s *Server) ready(ctx context.Context) error { return s.probe(ctx, true) }

// probe reads a key through the cluster, once: etcd's client would try again until the time is
// over. A refusal for lack of rights is an answer, too.
func (s *Server) probe(ctx context.Context, serializable bool) error {
	conn, err := s.up.conn(false)
	if err != nil {
		return err
	}
	_, err = pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte("health"), CountOnly: true, Serializable: serializable})
	if known := rpctypes.Error(err); errors.Is(known, rpctypes.ErrPermissionDenied) || errors.Is(known, rpctypes.ErrUserEmpty) {
		return nil
	}
	return err
}
