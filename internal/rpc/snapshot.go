package rpc

import (
	"crypto/sha256"
	"fmt"
	"io"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"
)

// snapshotChunk is etcd's; clients have seen no other.
const snapshotChunk = 32 * 1024

// Snapshot sends the file in chunks, then one more with its SHA-256, by which
// etcdutl checks what it restores.
func (s *maintenanceServer) Snapshot(_ *pb.SnapshotRequest, stream pb.Maintenance_SnapshotServer) error {
	content, size, version, err := s.m.Snapshot(stream.Context())
	if err != nil {
		return toStatus(err)
	}
	defer func() {
		if err := content.Close(); err != nil {
			s.lg.Warn("close snapshot", zap.Error(err))
		}
	}()
	began, bytes := time.Now(), zap.Int64("total-bytes", size)
	s.lg.Info("sending database snapshot to client", bytes, zap.String("storage-version", version))
	sum := sha256.New()
	for left := size; left > 0; {
		// Not reused: grpc may still be sending it when Send returns.
		chunk := make([]byte, min(snapshotChunk, left))
		if _, err := io.ReadFull(content, chunk); err != nil {
			return toStatus(fmt.Errorf("read snapshot with %d of %d bytes left: %w", left, size, err))
		}
		left -= int64(len(chunk))
		sum.Write(chunk)
		resp := &pb.SnapshotResponse{RemainingBytes: uint64(left), Blob: chunk, Version: version}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, content); err != nil { // the end says whether what came before it is good
		return toStatus(fmt.Errorf("read the end of a snapshot: %w", err))
	}
	if err := stream.Send(&pb.SnapshotResponse{Blob: sum.Sum(nil), Version: version}); err != nil {
		return err
	}
	s.lg.Info("successfully sent database snapshot to client", bytes, zap.Duration("took", time.Since(began)),
		zap.String("storage-version", version))
	return nil
}
