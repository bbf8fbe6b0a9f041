package snapshot

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/backend"
	"github.com/stoa-kv/stoa/internal/bootstrap"
	"github.com/stoa-kv/stoa/internal/vfs"
)

// A directory is made under the name unfinished, in the data directory, and gets the name
// member when it is complete.
const (
	unfinished = "restoring"
	member     = "member"
)

// directory is a member directory that is being made.
type directory struct {
	dataDir string
	lock    io.Closer
}

// newDirectory makes an empty one, and locks it. The rest of an interrupted restore there
// is removed; the caller must have looked whether it should be.
func newDirectory(dataDir string) (*directory, error) {
	d := &directory{dataDir: dataDir}
	if err := vfs.OS().MkdirAll(d.path()); err != nil {
		return nil, fmt.Errorf("making the data directory: %w", err)
	}
	if err := d.takeLock(); err != nil {
		return nil, err
	}
	if err := d.clear(); err != nil {
		d.release()
		return nil, fmt.Errorf("making the data directory: %w", err)
	}
	return d, nil
}

// takeLock locks the file that a server will lock.
func (d *directory) takeLock() error {
	lock, err := vfs.OS().Lock(filepath.Join(d.path(), "LOCK"))
	if errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf("another process is restoring into %s", d.dataDir)
	}
	if err != nil {
		return fmt.Errorf("taking the data directory: %w", err)
	}
	d.lock = lock
	return nil
}

func (d *directory) clear() error {
	for _, name := range []string{"snap", bootstrap.FileName} {
		if err := os.RemoveAll(filepath.Join(d.path(), name)); err != nil {
			return err
		}
	}
	return os.Mkdir(filepath.Join(d.path(), "snap"), 0o700)
}

func (d *directory) path() string   { return filepath.Join(d.dataDir, unfinished) }
func (d *directory) dbPath() string { return filepath.Join(d.path(), "snap", "db") }
func (d *directory) release()       { _ = d.lock.Close() }

// discard removes what an error has left. A crash leaves it.
func (d *directory) discard() error { return os.RemoveAll(d.path()) }

// complete makes the copy of a backend file that of a new cluster, and writes the record
// of its member.
func (d *directory) complete(st *State, self bootstrap.Self, lg *zap.Logger) (Result, error) {
	id := bootstrap.ID(st.id())
	self.Cluster = bootstrap.RestoredCluster(self.Cluster, id)
	self.Partitions = st.placement.Partitions()
	b, err := backend.Open(d.dbPath(), backend.Options{Foreign: true, Logger: lg})
	if err != nil {
		return Result{}, err
	}
	if err := errors.Join(b.Reset(st.Initial(self)), b.Close()); err != nil {
		return Result{}, err
	}
	if err := bootstrap.Restored(d.path(), self, id); err != nil {
		return Result{}, err
	}
	for _, dir := range []string{filepath.Dir(d.dbPath()), d.path()} {
		if err := vfs.OS().SyncDir(dir); err != nil {
			return Result{}, fmt.Errorf("syncing %s: %w", dir, err)
		}
	}
	return Result{Cluster: self.Cluster, Member: self.Member, Revision: st.revision, Partitions: self.Partitions, DroppedPins: st.dropped}, nil
}

// publish gives the directory its name, durably. That of the data directory has been since this was made, or found
// (vfs.FS.MkdirAll): what that is in may be another's, who doesn't let it be read.
func (d *directory) publish() error {
	if err := os.Rename(d.path(), filepath.Join(d.dataDir, member)); err != nil {
		return fmt.Errorf("naming the restored directory: %w", err)
	}
	if err := vfs.OS().SyncDir(d.dataDir); err != nil {
		return fmt.Errorf("syncing %s: %w", d.dataDir, err)
	}
	return nil
}

// Refuse returns an error for a data directory in which a restore was interrupted.
func Refuse(dataDir string) error {
	_, err := os.Stat(filepath.Join(dataDir, unfinished))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--data-dir %s: %w", dataDir, err)
	}
	return fmt.Errorf("--data-dir %s: a restore into it was interrupted, or is still running: if it is not, remove the directory and restore again", dataDir)
}
