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

// TakeOver makes a data directory of etcd's one of stoa's with a number of partitions: one
// that `etcdutl snapshot restore` has made and that no server has been started on, or, if
// convert says so, any whose server was stopped gracefully. The files of etcd's stay beside
// it. It does nothing to a directory without etcd's files, and fails for all others of etcd's.
// After a crash it goes on where it was.
func TakeOver(ctx context.Context, dataDir, walDir string, partitions int, convert bool, lg *zap.Logger) error {
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
			return fmt.Errorf("%s is of etcd, and stoa takes over only a log inside of the data directory: move its files to %s, and start without --wal-dir", dir, inside)
		}
		if found {
			return takeOver(ctx, dataDir, partitions, convert, lg)
		}
	}
	return nil
}

// errUsed is the reason for which a directory isn't taken over unasked.
var errUsed = errors.New("an etcd server has run on it")

func notTaken(dir string, why error) error {
	return fmt.Errorf("%s is of etcd (%w): stop etcd with SIGTERM, and convert the directory with --convert-etcd-data, or restore a snapshot into another one "+
		"(etcdctl snapshot save FILE, stoactl snapshot restore FILE)", dir, why)
}

// notComplete is for a directory whose log may have acknowledged writes that its state hasn't.
func notComplete(dir string, log etcdwal.Log, index uint64) error {
	return fmt.Errorf("%s can't be converted as it is: etcd's log ends at index %d, and its state file has the entries up to %d; "+
		"start etcd on it again, stop it with SIGTERM, and try again", dir, log.Last, index)
}

func takeOver(ctx context.Context, dataDir string, partitions int, convert bool, lg *zap.Logger) error {
	at := filepath.Join(dataDir, member)
	log, err := etcdwal.Read(filepath.Join(at, "wal"))
	if err != nil {
		return fmt.Errorf("%s: %w", dataDir, err)
	}
	if !log.Fresh && !convert {
		return notTaken(dataDir, errUsed)
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
	lg.Info("took over a data directory of etcd's; its files can be removed",
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
		return self, notComplete(db, log, index)
	}
	meta, err := b.Meta()
	if err != nil {
		return self, err
	}
	self = bootstrap.Self{Cluster: bootstrap.ID(log.Cluster), Member: bootstrap.ID(log.Member), Partitions: partitions}
	found := false
	for _, m := range meta.Members {
		if m.IsLearner {
			return self, fmt.Errorf("%s: its cluster has the learner %x: start etcd, promote or remove it, stop etcd, and try again", db, m.ID)
		}
		found = found || m.ID == log.Member
		self.Members = append(self.Members, bootstrap.Member{ID: bootstrap.ID(m.ID), Name: m.Name, PeerURLs: m.PeerURLs})
	}
	if !found {
		return self, fmt.Errorf("%s can't be taken over: its list of members lacks the one of its log, %x", db, log.Member)
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
