package rpc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/version"
)

// Downgrade lowers the version of the cluster. Targets are versions of stoa: all its releases
// show the same version of etcd to etcd's clients, so that there is no lower one of these.
// Cancelling what isn't under way succeeds, as in etcd.
func (s *maintenanceServer) Downgrade(ctx context.Context, r *pb.DowngradeRequest) (*pb.DowngradeResponse, error) {
	if err := s.downgrade(ctx, r); err != nil {
		s.lg.Warn("reject downgrade request", zap.Stringer("action", r.Action), zap.String("target-version", r.Version), zap.Error(err))
		if !errors.Is(err, fault.NoDowngrade) {
			return nil, toStatus(err)
		}
	}
	now, _ := s.m.ClusterVersion()
	return &pb.DowngradeResponse{Header: s.new(), Version: now.String()}, nil
}

func (s *maintenanceServer) downgrade(ctx context.Context, r *pb.DowngradeRequest) error {
	switch r.Action {
	case pb.DowngradeRequest_CANCEL:
		return s.m.Downgrade(ctx, r.Action, 0)
	case pb.DowngradeRequest_VALIDATE, pb.DowngradeRequest_ENABLE:
		target, err := targetOf(r.Version)
		if err != nil {
			return err
		}
		return s.m.Downgrade(ctx, r.Action, target)
	}
	return status.Error(codes.Unknown, "etcdserver: unknown method")
}

// targetOf reads a version as etcd does (server/etcdserver, convertToClusterVersion): of three
// numbers, with what semantic versions may have behind them, or of two. 0 is that of no
// release.
func targetOf(text string) (version.Level, error) {
	core, _, more := strings.Cut(text, "+")
	core, _, pre := strings.Cut(core, "-")
	numbers := strings.Split(core, ".")
	if len(numbers) != 3 && (len(numbers) != 2 || more || pre) {
		return 0, rpctypes.ErrGRPCWrongDowngradeVersionFormat
	}
	var parsed [3]int64
	for i, n := range numbers {
		var err error
		if parsed[i], err = strconv.ParseInt(n, 10, 64); err != nil {
			return 0, rpctypes.ErrGRPCWrongDowngradeVersionFormat
		}
	}
	l, _ := version.LevelOf(fmt.Sprintf("%d.%d", parsed[0], parsed[1]))
	return l, nil
}

func (s *maintenanceServer) downgradeInfo() *pb.DowngradeInfo {
	v, downgrading := s.m.ClusterVersion()
	if !downgrading {
		return &pb.DowngradeInfo{}
	}
	return &pb.DowngradeInfo{Enabled: true, TargetVersion: v.String()}
}
