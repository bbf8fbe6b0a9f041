package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// ErrLocked is returned when another process holds the lock.
var ErrLocked = errors.New("locked by another process")

// OS returns the file system of the operating system.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) Create(name string) (File, error) {
	return openOS(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (osFS) Open(name string) (File, error)     { return openOS(name, os.O_RDWR) }
func (osFS) OpenRead(name string) (File, error) { return openOS(name, os.O_RDONLY) }

func openOS(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Rename(oldname, newname string) error { return os.Rename(oldname, newname) }
func (osFS) Remove(name string) error             { return os.Remove(name) }

// MkdirAll syncs the parent of each directory before it makes the next one in that, and also that of the last one
// that is there: a process may have made it, and been killed before it did so.
func (o osFS) MkdirAll(dir string) error {
	dir = filepath.Clean(dir)
	parent := filepath.Dir(dir)
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = o.MkdirAll(parent)
		if err == nil {
			err = os.Mkdir(dir, 0o700)
		}
		if errors.Is(err, fs.ErrExist) {
			err = nil
		}
	case err == nil && !info.IsDir():
		err = &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	}
	if err != nil {
		return err
	}
	err = o.SyncDir(parent)
	// It may be another's, who doesn't let it be read, and some file systems don't sync directories.
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f); err != nil {
		return nil, errors.Join(&fs.PathError{Op: "lock", Path: name, Err: err}, f.Close())
	}
	return f, nil
}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f osFile) NextData(off int64) (from, to int64, err error) {
	size, err := f.Size()
	if err != nil || off >= size {
		return size, size, err
	}
	from, to, err = seekData(f.File, off)
	switch {
	case errors.Is(err, io.EOF):
		return size, size, nil
	case errors.Is(err, errors.ErrUnsupported):
		return off, size, nil
	case err != nil:
		return 0, 0, &fs.PathError{Op: "seek", Path: f.Name(), Err: err}
	}
	return from, to, nil
}

func (f osFile) Sync() error {
	if err := fdatasync(f.File); err != nil {
		return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}

func (f osFile) Preallocate(size int64) error {
	err := fallocate(f.File, size)
	if errors.Is(err, errors.ErrUnsupported) {
		// In a sparse file a later write may find the disk full; the log
		// fails then as it does after any failed write.
		err = f.Truncate(size)
	}
	if err != nil {
		return fmt.Errorf("preallocating %d bytes for %s: %w", size, f.Name(), err)
	}
	return nil
}
