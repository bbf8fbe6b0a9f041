package disk

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/stoa-kv/stoa/internal/vfs"
)

// ErrNotPermitted is the error of Mount where file systems in user space can't be mounted.
var ErrNotPermitted = errors.New("no file system can be mounted here (this needs root and /dev/fuse)")

// contents is the directory of Disk.mem that has all files, each with a number for a name.
const contents = "contents"

// Disk is a file system that is mounted. Its methods may be called while it is in use, but for Lose and Close.
type Disk struct {
	dir    string
	server *fuse.Server
	delay  atomic.Int64 // of each sync, in nanoseconds

	mu    sync.Mutex // guards the names of all directories, and what follows
	root  *dir
	mem   *vfs.Mem
	files int // that were ever made
	fail  func(op vfs.Op) syscall.Errno
}

// Mount mounts an empty disk at a directory that exists.
func Mount(at string) (*Disk, error) {
	d := &Disk{dir: at}
	if err := d.empty(); err != nil {
		return nil, err
	}
	return d, d.mount()
}

// empty makes it an empty one.
func (d *Disk) empty() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mem, d.root = vfs.NewMem(), newDir(d)
	d.inject()
	return d.mem.MkdirAll(contents)
}

func (d *Disk) mount() error {
	var now time.Duration // nothing is remembered by the kernel but pages, until the next open
	// go-fuse opens a file of the new disk for a moment. A process that is started then would have it open for as long as it runs.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	server, err := fs.Mount(d.dir, d.root, &fs.Options{
		EntryTimeout: &now, AttrTimeout: &now,
		MountOptions: fuse.MountOptions{DirectMountStrict: true, DirectMountFlags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME, FsName: "stoa-test", DisableXAttrs: true, MaxWrite: 1 << 20},
	})
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV):
		return fmt.Errorf("%w: %w", ErrNotPermitted, err)
	case err != nil:
		return fmt.Errorf("mounting a disk at %s: %w", d.dir, err)
	}
	d.server = server
	return nil
}

// Slow has each sync take so much longer, until the next call.
func (d *Disk) Slow(by time.Duration) { d.delay.Store(int64(by)) }

// Fail has each operation asked whether it fails, and with what; nil ends that. A sync that fails
// doesn't write what it should have, and nor does the next one, as on Linux.
func (d *Disk) Fail(hook func(op vfs.Op) syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = hook
	d.inject()
}

// inject has the contents fail, too. Their names are this package's own affair.
func (d *Disk) inject() {
	hook := d.fail
	d.mem.Inject(func(op vfs.Op, _ string) error {
		switch op {
		case vfs.OpRead, vfs.OpWrite, vfs.OpPreallocate, vfs.OpSync:
			if hook == nil {
				return nil
			}
			if e := hook(op); e != 0 {
				return e
			}
		}
		return nil
	})
}

// enter asks whether an operation on names fails. The caller holds mu.
func (d *Disk) enter(op vfs.Op) syscall.Errno {
	if d.fail == nil {
		return fs.OK
	}
	return d.fail(op)
}

// Lose is a power cut: what wasn't synced is lost, but for a part that rnd draws. No process may
// use the disk.
func (d *Disk) Lose(rnd *rand.Rand) error {
	if err := d.unmount(); err != nil {
		return err
	}
	d.mu.Lock()
	d.mem = d.mem.Crash(rnd)
	d.root = d.root.crash(rnd)
	err := d.sweep()
	d.inject()
	d.mu.Unlock()
	if err != nil {
		return err
	}
	return d.mount()
}

// Clear takes everything off it, as a new disk. No process may use it.
func (d *Disk) Clear() error {
	if err := d.unmount(); err != nil {
		return err
	}
	if err := d.empty(); err != nil {
		return err
	}
	return d.mount()
}

// sweep removes contents that no name leads to.
func (d *Disk) sweep() error {
	used := map[string]bool{}
	d.root.each(func(f *file) { used[f.content] = true })
	all, err := d.mem.List(contents)
	if err != nil {
		return err
	}
	for _, name := range all {
		if used[name] {
			continue
		}
		if err := d.mem.Remove(contents + "/" + name); err != nil {
			return err
		}
	}
	return d.mem.SyncDir(contents)
}

// newContent makes an empty one; that there is one is durable, the name in it alone isn't.
func (d *Disk) newContent() (name string, f vfs.File, err error) {
	d.files++
	name = strconv.Itoa(d.files)
	if f, err = d.mem.Create(contents + "/" + name); err != nil {
		return "", nil, err
	}
	return name, f, d.mem.SyncDir(contents)
}

// Close unmounts it; everything on it is gone.
func (d *Disk) Close() error { return d.unmount() }

// unmount waits a moment for the last process to have ended.
func (d *Disk) unmount() error {
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		err := unix.Unmount(d.dir, 0)
		switch {
		case err == nil:
			d.server.Wait()
			return nil
		case !errors.Is(err, unix.EBUSY) || time.Since(began) > 10*time.Second:
			return fmt.Errorf("unmounting %s: %w", d.dir, err)
		}
	}
}

// errno is what a call answers for an error of the contents.
func errno(err error) syscall.Errno {
	var e syscall.Errno
	if err == nil || errors.As(err, &e) {
		return e
	}
	return syscall.EIO
}
