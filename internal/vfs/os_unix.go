//go:build unix && !linux

package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Outside Linux the full sync is the only one that is the same everywhere.
func fdatasync(f *os.File) error { return f.Sync() }

func fallocate(*os.File, int64) error { return errors.ErrUnsupported }

func seekData(*os.File, int64) (from, to int64, err error) { return 0, 0, errors.ErrUnsupported }

func flock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}
