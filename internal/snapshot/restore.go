package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/bootstrap"
	"github.com/stoa-kv/stoa/internal/config"
)

// Config says which member of which cluster a directory is made for.
type Config struct {
	// Name and PeerURLs are this member's, InitialCluster is all members as in
	// --initial-cluster.
	Name           string
	PeerURLs       []string
	InitialCluster string
	Token          string

	// DataDir and WALDir must be empty or not there. An empty WALDir is inside DataDir.
	DataDir, WALDir string
	Partitions      int // 0: config.DefaultPartitions

	// SkipHashCheck accepts a file without a checksum behind it.
	SkipHashCheck bool
	// BumpRevision is added to the revision of the file, and what was before is marked as
	// compacted: so no client can take a revision of the new cluster for one that the old
	// cluster has given out after the snapshot. 0: neither.
	BumpRevision int64

	// Progress is told the bytes that have been copied. It may be nil.
	Progress func(done, total int64)
	Logger   *zap.Logger // none if nil
}

// Result describes a restored directory.
type Result struct {
	Cluster, Member bootstrap.ID
	Revision        int64 // the next write takes a higher one
	Partitions      int
	DroppedPins     []DroppedPin // in the order of their keys
}

// Restore makes a data directory out of a snapshot.
func Restore(ctx context.Context, file string, c Config) (Result, error) {
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if c.Partitions == 0 {
		c.Partitions = config.DefaultPartitions
	}
	if c.Partitions < 1 || c.Partitions > config.MaxPartitions {
		return Result{}, fmt.Errorf("--partitions=%d: there can be 1 to %d", c.Partitions, config.MaxPartitions)
	}
	if c.BumpRevision < 0 {
		return Result{}, fmt.Errorf("--bump-revision=%d: a revision can't go back", c.BumpRevision)
	}
	self, err := c.self(ctx)
	if err != nil {
		return Result{}, err
	}
	if err := c.checkTarget(); err != nil {
		return Result{}, err
	}
	began := time.Now()
	c.Logger.Info("restoring snapshot", zap.String("path", file), zap.String("data-dir", c.DataDir))
	r, err := restore(ctx, file, &c, self)
	if err != nil {
		return Result{}, err
	}
	c.Logger.Info("restored snapshot", zap.String("path", file), zap.String("data-dir", c.DataDir),
		zap.Stringer("cluster-id", r.Cluster), zap.Stringer("local-member-id", r.Member),
		zap.Int64("revision", r.Revision), zap.Int("partitions", r.Partitions), zap.Duration("took", time.Since(began)))
	return r, nil
}

// self checks the flags as a server without data does, and returns the member with the IDs
// that it would have in a cluster that begins empty.
func (c *Config) self(ctx context.Context) (bootstrap.Self, error) {
	initial, err := types.NewURLsMap(c.InitialCluster)
	if err != nil {
		return bootstrap.Self{}, fmt.Errorf("--initial-cluster %q: %w", c.InitialCluster, err)
	}
	urls, err := types.NewURLs(c.PeerURLs)
	if err != nil {
		return bootstrap.Self{}, fmt.Errorf("--initial-advertise-peer-urls: %w", err)
	}
	cfg := config.Config{
		Name: c.Name, InitialCluster: initial, InitialClusterToken: c.Token, AdvertisePeerURLs: urls,
		NewCluster: true, Partitions: c.Partitions,
	}
	if err := cfg.CheckBootstrap(ctx); err != nil {
		return bootstrap.Self{}, err
	}
	return bootstrap.SelfOf(&cfg), nil
}

func (c *Config) checkTarget() error {
	if err := checkEmpty("--data-dir", c.DataDir); err != nil {
		return err
	}
	if c.WALDir == "" {
		return nil
	}
	return checkEmpty("--wal-dir", c.WALDir)
}

func checkEmpty(flag, dir string) error {
	list, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(list) == 0:
		return nil
	case err != nil:
		return fmt.Errorf("%s %s: %w", flag, dir, err)
	case len(list) == 1 && list[0].Name() == unfinished:
		return fmt.Errorf("%s %s has only the rest of a restore that was interrupted: remove it, and restore again", flag, dir)
	}
	return fmt.Errorf("%s %s is not empty: name a directory that doesn't exist yet", flag, dir)
}

// restore reads the file, and then makes the directory.
func restore(ctx context.Context, file string, c *Config, self bootstrap.Self) (Result, error) {
	src, err := openSource(ctx, file, c.SkipHashCheck)
	if err != nil {
		return Result{}, err
	}
	defer src.close() //nolint:errcheck // it was only read
	st, err := readState(file, c.Partitions, c.BumpRevision, c.Logger)
	if errors.Is(err, backend.ErrForeign) {
		err = fmt.Errorf("%w: is it a snapshot?", err)
	}
	if err != nil {
		return Result{}, err
	}
	dir, err := newDirectory(c.DataDir)
	if err != nil {
		return Result{}, err
	}
	defer dir.release()
	if err := src.copyTo(ctx, dir.dbPath(), c.Progress); err != nil {
		return Result{}, errors.Join(err, dir.discard())
	}
	r, err := dir.complete(&st, self, c.Logger)
	if err != nil {
		return Result{}, errors.Join(err, dir.discard())
	}
	return r, dir.publish()
}
