package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/stoa-kv/stoa/internal/backend"
)

// ErrDamaged is wrapped by the errors about a file that isn't what was saved.
var ErrDamaged = errors.New("the snapshot is damaged")

// source is a snapshot file.
type source struct {
	path string
	file *os.File
	size int64 // of the backend file in it
	sum  []byte
}

// openSource opens a snapshot and compares it with its checksum. trusted accepts a file
// without one, and doesn't look at one that is there.
func openSource(ctx context.Context, path string, trusted bool) (_ *source, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("opening the snapshot: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", path)
	}
	s := &source{path: path, file: f, size: info.Size()}
	signed := HasChecksum(info.Size())
	if signed {
		s.size -= sha256.Size
	}
	if !signed && !trusted {
		return nil, fmt.Errorf("%s: %w: it doesn't end with a checksum; it was cut, or it is a copy of a data directory's file, "+
			"which --skip-hash-check accepts", path, ErrDamaged)
	}
	if s.sum, err = s.hash(ctx); err != nil {
		return nil, err
	}
	if trusted {
		return s, nil
	}
	want := make([]byte, sha256.Size)
	if _, err := f.ReadAt(want, s.size); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if !bytes.Equal(want, s.sum) {
		return nil, fmt.Errorf("%s: %w: its SHA-256 is %x, and %x was saved with it", path, ErrDamaged, s.sum, want)
	}
	return s, nil
}

// HasChecksum reports whether a file of n bytes has a checksum behind its pages, as etcd
// decides it.
func HasChecksum(n int64) bool { return n%512 == sha256.Size }

func (s *source) hash(ctx context.Context) ([]byte, error) {
	h := sha256.New()
	if _, err := io.Copy(h, s.reader(ctx)); err != nil {
		return nil, fmt.Errorf("reading %s: %w", s.path, err)
	}
	return h.Sum(nil), nil
}

// reader reads the backend file, until ctx ends.
func (s *source) reader(ctx context.Context) io.Reader {
	return &interruptible{ctx, io.NewSectionReader(s.file, 0, s.size)}
}

type interruptible struct {
	ctx context.Context
	r   io.Reader
}

func (i *interruptible) Read(b []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.r.Read(b)
}

// copyTo writes the backend file, and fails if that isn't what was read before. It doesn't
// sync: the transaction that follows syncs all of the file.
func (s *source) copyTo(ctx context.Context, path string, progress func(done, total int64)) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	to := &counter{w: io.MultiWriter(f, h), total: s.size, tell: progress}
	if _, err := io.CopyBuffer(to, s.reader(ctx), make([]byte, 1<<20)); err != nil {
		return fmt.Errorf("copying %s: %w", s.path, err)
	}
	if !bytes.Equal(h.Sum(nil), s.sum) {
		return fmt.Errorf("%s was changed while it was read", s.path)
	}
	return nil
}

type counter struct {
	w           io.Writer
	done, total int64
	tell        func(done, total int64)
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.done += int64(n)
	if c.tell != nil {
		c.tell(c.done, c.total)
	}
	return n, err
}

func (s *source) close() error { return s.file.Close() }

// Status describes a snapshot, or the file of a stopped server, as `etcdutl snapshot
// status` does. It doesn't look at the checksum behind it.
func Status(path string) (backend.Status, error) {
	b, err := backend.Open(path, backend.Options{Foreign: true, ReadOnly: true})
	if err != nil {
		return backend.Status{}, err
	}
	s, err := b.Status()
	return s, errors.Join(err, b.Close())
}
