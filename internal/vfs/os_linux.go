package vfs

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// fdatasync carries the file's length along but not its timestamps, which
// saves a journal commit for every write into preallocated room.
func fdatasync(f *os.File) error {
	return retry(func() error { return unix.Fdatasync(int(f.Fd())) })
}

func fallocate(f *os.File, size int64) error {
	return retry(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, size) })
}

// seekData moves the file's own offset, which nothing uses.
func seekData(f *os.File, off int64) (from, to int64, err error) {
	err = retry(func() (err error) {
		if from, err = unix.Seek(int(f.Fd()), off, unix.SEEK_DATA); err == nil {
			to, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
		}
		return err
	})
	switch err {
	case unix.ENXIO:
		err = io.EOF
	case unix.EINVAL:
		err = errors.ErrUnsupported
	}
	return from, to, err
}

func flock(f *os.File) error {
	err := retry(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// retry repeats a call that a signal interrupted before it had done anything;
// the Go runtime preempts goroutines with signals.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
