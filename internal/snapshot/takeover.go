package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/bootstrap"
	"github.com/stoa-kv/stoa/internal/etcdwal"
	"github.com/stoa-kv/stoa/internal/vfs"
)

// retired is the name that a directory of etcd's gets. Nothing reads it any more.
const retired = "member.etcd"

// TakeOver makes a data directory that `etcdutl snapshot restore` has made, and that no
// server has been started on, one of stoa's with a number of partitions; the files of
// etcd's stay beside it. It does nothing to a directory without etcd's files, and fails for
// all others of etcd's. After a crash it goes on where it was.
func TakeOver(ctx context.Context, dataDir, walDir string, partitions int, lg *zap.Logger) error {
	at := filepath.Join(dataDir, member)
	if interrupted, err := wasInterrupted(dataDir); err != nil || interrupted {
		if err == nil {
			err = resume(dataDir)
		}
		return err
	}
	inside := filepath.Join(at, "wal")
	for _, dir := range []string{inside, walDir} {
		found, err := etcdwal.Found(dir)
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		if found && dir != inside {
			return notTaken(dir, errors.New("its log is not in the data directory"))
		}
		if found {
			return takeOver(ctx, dataDir, partitions, lg)
		}
	}
	return nil
}

func notTaken(dir string, why error) error {
	return fmt.Errorf("%s is of etcd (%w), and stoa takes over only what etcdutl snapshot restore has just made: start etcd on it, "+
		"save a snapshot (etcdctl snapshot save FILE), and make a new data directory of that (stoactl snapshot restore FILE)", dir, why)
}

func takeOver(ctx context.Context, dataDir string, partitions int, lg *zap.Logger) error {
	at := filepath.Join(dataDir, member)
	log, err := etcdwal.Read(filepath.Join(at, "wal"))
	if err != nil {
		return notTaken(dataDir, err)
	}
	if _, err := os.Stat(filepath.Join(dataDir, retired)); err == nil {
		return fmt.Errorf("%s has another directory of etcd's, %s: move it away", dataDir, retired)
	}
	db := filepath.Join(at, "snap", "db")
	self, err := memberOf(db, log, partitions)
	if err != nil {
		return err
	}
	src, err := openSource(ctx, db, true)
	if err != nil {
		return err
	}
	defer src.close() //nolint:errcheck // it was only read
	st, err := readState(db, partitions, 0, lg)
	if err != nil {
		return err
	}
	dir, err := newDirectory(dataDir)
	if err != nil {
		return err
	}
	defer dir.release()
	if err := src.copyTo(ctx, dir.dbPath(), nil); err != nil {
		return errors.Join(err, dir.discard())
	}
	r, err := dir.complete(&st, self, lg)
	if err != nil {
		return errors.Join(err, dir.discard())
	}
	if err := retire(dataDir); err != nil {
		return err
	}
	lg.Info("took over a data directory that etcdutl has restored; its files can be removed",
		zap.String("data-dir", dataDir), zap.String("files", filepath.Join(dataDir, retired)), zap.Int64("revision", r.Revision),
		zap.Stringer("cluster-id", r.Cluster), zap.Stringer("local-member-id", r.Member), zap.Int("partitions", r.Partitions))
	return dir.publish()
}

// memberOf returns the member that a directory was restored for: its IDs are in the log,
// the list of members is in the state.
func memberOf(db string, log etcdwal.Log, partitions int) (self bootstrap.Self, err error) {
	b, err := backend.Open(db, backend.Options{Foreign: true, ReadOnly: true})
	if err != nil {
		return self, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	index, err := b.ConsistentIndex()
	if err != nil {
		return self, err
	}
	if index != log.Last {
		return self, notTaken(db, fmt.Errorf("%w: its log ends at index %d, its state at %d", etcdwal.ErrUsed, log.Last, index))
	}
	meta, err := b.Meta()
	if err != nil {
		return self, err
	}
	self = bootstrap.Self{Cluster: bootstrap.ID(log.Cluster), Member: bootstrap.ID(log.Member), Partitions: partitions}
	found := false
	for _, m := range meta.Members {
		found = found || m.ID == log.Member
		self.Members = append(self.Members, bootstrap.Member{ID: bootstrap.ID(m.ID), Name: m.Name, PeerURLs: m.PeerURLs})
	}
	if !found {
		return self, notTaken(db, fmt.Errorf("its list of members lacks %x", log.Member))
	}
	return self, nil
}

// retire moves etcd's files away. From here on resume completes what was begun.
func retire(dataDir string) error {
	if err := os.Rename(filepath.Join(dataDir, member), filepath.Join(dataDir, retired)); err != nil {
		return fmt.Errorf("moving etcd's files away: %w", err)
	}
	return vfs.OS().SyncDir(dataDir)
}

// wasInterrupted reports a directory whose files of etcd's have been moved away, and whose
// new ones, complete by then, don't have their name yet.
func wasInterrupted(dataDir string) (bool, error) {
	for name, want := range map[string]bool{member: false, retired: true, unfinished: true} {
		_, err := os.Stat(filepath.Join(dataDir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, fmt.Errorf("--data-dir %s: %w", dataDir, err)
		}
		if (err == nil) != want {
			return false, nil
		}
	}
	return true, nil
}

func resume(dataDir string) error {
	d := &directory{dataDir: dataDir}
	if err := d.takeLock(); err != nil {
		return err
	}
	defer d.release()
	return d.publish()
}
