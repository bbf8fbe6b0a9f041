package disk

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/stoa-kv/stoa/internal/vfs"
)

// file is a file. Cutting it to nothing gives it another content, which is durable with its next sync.
type file struct {
	fs.Inode
	disk             *Disk
	content, durable string // names of contents; durable is "" before the first sync
	open             vfs.File
}

var (
	_ fs.NodeOpener    = (*file)(nil)
	_ fs.NodeReader    = (*file)(nil)
	_ fs.NodeWriter    = (*file)(nil)
	_ fs.NodeFsyncer   = (*file)(nil)
	_ fs.NodeFlusher   = (*file)(nil)
	_ fs.NodeGetattrer = (*file)(nil)
	_ fs.NodeSetattrer = (*file)(nil)
	_ fs.NodeAllocater = (*file)(nil)
	_ fs.NodeLseeker   = (*file)(nil)
)

// renew gives it an empty content.
func (f *file) renew() (err error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.content, f.open, err = f.disk.newContent()
	return err
}

// now is its content.
func (f *file) now() vfs.File {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return f.open
}

func (f *file) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if flags&syscall.O_TRUNC != 0 {
		return nil, 0, errno(f.renew())
	}
	return nil, 0, fs.OK
}

func (f *file) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	n, err := f.now().ReadAt(dest, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, errno(err)
	}
	return fuse.ReadResultData(dest[:n]), fs.OK
}

func (f *file) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	n, err := f.now().WriteAt(data, off)
	return uint32(n), errno(err)
}

// wait is how long a sync takes.
func (d *Disk) wait() { time.Sleep(time.Duration(d.delay.Load())) }

func (f *file) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	f.disk.wait()
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.open.Sync(); err != nil {
		return errno(err)
	}
	f.durable = f.content
	return fs.OK
}

// Flush is a close, which syncs nothing.
func (f *file) Flush(context.Context, fs.FileHandle) syscall.Errno { return fs.OK }

func (f *file) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	size, err := f.now().Size()
	out.Size, out.Mode, out.Blksize = uint64(size), 0o600, 4096
	return errno(err)
}

// Setattr changes the size, to nothing or to more; all else is taken note of nowhere.
func (f *file) Setattr(ctx context.Context, h fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if to, asked := in.GetSize(); asked {
		if e := f.resize(int64(to)); e != 0 {
			return e
		}
	}
	return f.Getattr(ctx, h, out)
}

func (f *file) resize(to int64) syscall.Errno {
	size, err := f.now().Size()
	switch {
	case err != nil || to == size:
		return errno(err)
	case to > size:
		return errno(f.now().Preallocate(to))
	case to == 0:
		return errno(f.renew())
	}
	return syscall.ENOTSUP
}

func (f *file) Allocate(_ context.Context, _ fs.FileHandle, off, size uint64, mode uint32) syscall.Errno {
	if mode != 0 {
		return syscall.ENOTSUP
	}
	have, err := f.now().Size()
	if to := int64(off + size); err == nil && to > have {
		err = f.now().Preallocate(to)
	}
	return errno(err)
}

func (f *file) Lseek(_ context.Context, _ fs.FileHandle, off uint64, whence uint32) (uint64, syscall.Errno) {
	from, to, err := f.now().NextData(int64(off))
	switch {
	case err != nil:
		return 0, errno(err)
	case whence == unix.SEEK_DATA && from == to:
		return 0, syscall.ENXIO
	case whence == unix.SEEK_DATA:
		return uint64(from), fs.OK
	case from > int64(off) || from == to: // a hole is at off
		return off, fs.OK
	}
	return uint64(to), fs.OK
}

// crash is the file as a power cut leaves it, whose contents have lost already what they lose.
func (f *file) crash(rnd *rand.Rand) *file {
	left := &file{disk: f.disk, content: f.content}
	if f.durable != "" && f.durable != f.content && rnd.IntN(2) == 0 {
		left.content = f.durable
	}
	left.durable = left.content
	var err error
	if left.open, err = f.disk.mem.Open(contents + "/" + left.content); err != nil {
		panic(err) // it was there, and names of contents are durable
	}
	return left
}
