package backend

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.uber.org/zap"
)

// A defragmentation copies the file in pieces, and after each syncs the copy
// and pauses.
const (
	copyPiece  = 1 << 20 // bytes
	copyPauses = 1
)

// defragment copies the file while reads go on, and swaps the copy in. Readers
// of the old file keep it until they end.
func (f *file) defragment() error {
	f.flushing.Lock()
	defer f.flushing.Unlock()
	if f.failed != nil {
		return f.failed
	}
	began, before, beforeInUse := time.Now(), f.total.Load(), f.inUse.Load()
	f.lg.Info("defragmenting", zap.String("path", f.path),
		zap.Int64("current-db-size-bytes", before), zap.Int64("current-db-size-in-use-bytes", beforeInUse))
	tmp := f.path + defragmented
	if err := f.copyTo(tmp); err != nil {
		os.Remove(tmp) //nolint:errcheck // the next attempt writes over it
		return fmt.Errorf("defragment %s: %w", f.path, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	err := os.Rename(tmp, f.path)
	if err != nil {
		return fmt.Errorf("defragment %s: %w", f.path, err)
	}
	old := f.db
	go func() {
		if err := old.closeUnread(); err != nil {
			f.lg.Warn("could not close the file from before the defragmentation", zap.Error(err))
		}
	}()
	db, err := f.reopen()
	if err != nil {
		// The old file is unlinked: writing to it would lose acknowledged
		// writes.
		f.failed = fmt.Errorf("reopen %s after defragmentation: %w", f.path, err)
		return f.failed
	}
	f.db = db
	f.measure()
	after, afterInUse := f.size()
	f.lg.Info("finished defragmenting directory", zap.String("path", f.path),
		zap.Int64("current-db-size-bytes-diff", after-before), zap.Int64("current-db-size-bytes", after),
		zap.Int64("current-db-size-in-use-bytes-diff", afterInUse-beforeInUse), zap.Int64("current-db-size-in-use-bytes", afterInUse),
		zap.Duration("took", time.Since(began)))
	return nil
}

func (f *file) reopen() (*database, error) {
	if err := syncDir(filepath.Dir(f.path)); err != nil {
		return nil, err
	}
	return openDatabase(f.path, f.options())
}

func (f *file) copyTo(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	o := f.options()
	o.NoSync = true       // until all of it is there
	o.InitialMmapSize = 0 // it has no readers to wait for
	dst, err := bolt.Open(path, 0o600, o)
	if err != nil {
		return err
	}
	err = guard(f.path, nil, func() error { return copyAll(dst, f.db.DB) })
	if err == nil {
		err = dst.Sync()
	}
	return errors.Join(err, dst.Close())
}

// copyAll writes the content of a file into an empty one, with full pages.
func copyAll(dst, src *bolt.DB) error {
	return src.View(func(from *bolt.Tx) error {
		to, err := dst.Begin(true)
		if err != nil {
			return err
		}
		c := &copier{dst: dst, to: to, pace: begin(copyPauses, longestPause)}
		defer func() { c.to.Rollback() }() //nolint:errcheck // committed, or given up
		err = from.ForEach(func(name []byte, b *bolt.Bucket) error {
			if err := c.copy(name, b); err != nil {
				return fmt.Errorf("copy bucket %q: %w", name, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		return c.to.Commit()
	})
}

// copier fills a file in several transactions.
type copier struct {
	dst  *bolt.DB
	to   *bolt.Tx
	size int // bytes not yet synced
	pace *pace
}

func (c *copier) copy(name []byte, from *bolt.Bucket) error {
	to, err := c.to.CreateBucket(name)
	if err == nil {
		err = to.SetSequence(from.Sequence())
	}
	if err != nil {
		return err
	}
	to.FillPercent = 1
	return from.ForEach(func(k, v []byte) error {
		if v == nil {
			return fmt.Errorf("%w: bucket %q in a bucket", ErrForeign, k)
		}
		if c.size >= copyPiece {
			if err := c.sync(); err != nil {
				return err
			}
			to = c.to.Bucket(name)
			to.FillPercent = 1
		}
		c.size += len(k) + len(v)
		return to.Put(k, v)
	})
}

// sync makes the copied piece durable, pauses, and begins the next
// transaction.
func (c *copier) sync() error {
	if err := c.to.Commit(); err != nil {
		return err
	}
	if err := c.dst.Sync(); err != nil {
		return err
	}
	c.pace.pause()
	to, err := c.dst.Begin(true)
	if err != nil {
		return err
	}
	c.to, c.size = to, 0
	return nil
}
