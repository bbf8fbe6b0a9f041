package disk

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/stoa-kv/stoa/internal/vfs"
)

// node is a dir or a file.
type node interface{ fs.InodeEmbedder }

// dir is a directory. The kernel's lookups and lists are answered from the tree of package fs, which
// has the same names.
type dir struct {
	fs.Inode
	disk    *Disk
	names   map[string]node
	durable map[string]node // of the last sync
	pending []change        // since then, in order
}

func newDir(of *Disk) *dir {
	return &dir{disk: of, names: map[string]node{}, durable: map[string]node{}}
}

// change removes a name, if it isn't empty, and adds another, if it isn't empty, for a node; both or neither.
type change struct {
	removed, added string
	node           node
}

func (c change) apply(names map[string]node) {
	if c.removed != "" {
		delete(names, c.removed)
	}
	if c.added != "" {
		names[c.added] = c.node
	}
}

var (
	_ fs.NodeOnAdder  = (*dir)(nil)
	_ fs.NodeCreater  = (*dir)(nil)
	_ fs.NodeMkdirer  = (*dir)(nil)
	_ fs.NodeUnlinker = (*dir)(nil)
	_ fs.NodeRmdirer  = (*dir)(nil)
	_ fs.NodeRenamer  = (*dir)(nil)
	_ fs.NodeFsyncer  = (*dir)(nil)
	_ fs.NodeStatfser = (*dir)(nil)
)

// OnAdd puts what a new mount finds into the tree.
func (d *dir) OnAdd(ctx context.Context) {
	for name, n := range d.names {
		d.AddChild(name, d.inode(ctx, n), true)
	}
}

func (d *dir) inode(ctx context.Context, n node) *fs.Inode {
	mode := uint32(syscall.S_IFREG)
	if _, is := n.(*dir); is {
		mode = syscall.S_IFDIR
	}
	return d.NewPersistentInode(ctx, n, fs.StableAttr{Mode: mode})
}

// change does a change, if it doesn't fail; without a node it is a rename's or a removal's.
func (d *dir) change(op vfs.Op, c change) syscall.Errno {
	d.disk.mu.Lock()
	defer d.disk.mu.Unlock()
	if e := d.disk.enter(op); e != 0 {
		return e
	}
	gone := c.added
	if c.node == nil {
		c.node = d.names[c.removed]
	}
	if gone == "" {
		gone = c.removed
	}
	if over, is := d.names[gone].(*dir); is && len(over.names) > 0 {
		return syscall.ENOTEMPTY
	}
	c.apply(d.names)
	d.pending = append(d.pending, c)
	return fs.OK
}

func (d *dir) Create(ctx context.Context, name string, _, _ uint32, _ *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	f := &file{disk: d.disk}
	if err := f.renew(); err != nil {
		return nil, nil, 0, errno(err)
	}
	if e := d.change(vfs.OpCreate, change{added: name, node: f}); e != 0 {
		return nil, nil, 0, e
	}
	return d.inode(ctx, f), nil, 0, fs.OK
}

func (d *dir) Mkdir(ctx context.Context, name string, _ uint32, _ *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	made := newDir(d.disk)
	if e := d.change(vfs.OpMkdir, change{added: name, node: made}); e != 0 {
		return nil, e
	}
	return d.inode(ctx, made), fs.OK
}

func (d *dir) Unlink(_ context.Context, name string) syscall.Errno {
	return d.change(vfs.OpRemove, change{removed: name})
}

func (d *dir) Rmdir(_ context.Context, name string) syscall.Errno {
	return d.change(vfs.OpRemove, change{removed: name})
}

func (d *dir) Rename(_ context.Context, name string, to fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	if to != fs.InodeEmbedder(d) || flags != 0 {
		return syscall.ENOTSUP
	}
	return d.change(vfs.OpRename, change{removed: name, added: newName})
}

func (d *dir) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	d.disk.wait()
	d.disk.mu.Lock()
	defer d.disk.mu.Unlock()
	if e := d.disk.enter(vfs.OpSyncDir); e != 0 {
		return e
	}
	d.durable, d.pending = maps.Clone(d.names), nil
	return fs.OK
}

// Statfs tells of much room.
func (d *dir) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	*out = fuse.StatfsOut{Bsize: 4096, Frsize: 4096, Blocks: 1 << 28, Bfree: 1 << 27, Bavail: 1 << 27, NameLen: 255}
	return fs.OK
}

// crash is the directory as a power cut leaves it, all below it included: the durable names, with none, all,
// or any of the changes since.
func (d *dir) crash(rnd *rand.Rand) *dir {
	const none, all = 0, 1
	names := maps.Clone(d.durable)
	keep := rnd.IntN(3)
	for _, c := range d.pending {
		if keep == all || keep != none && rnd.IntN(2) == 0 {
			c.apply(names)
		}
	}
	left := newDir(d.disk)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		switch n := names[name].(type) {
		case *dir:
			left.names[name] = n.crash(rnd)
		case *file:
			left.names[name] = n.crash(rnd)
		}
	}
	left.durable = maps.Clone(left.names)
	return left
}

// each visits all files.
func (d *dir) each(visit func(*file)) {
	for _, n := range d.names {
		switch n := n.(type) {
		case *dir:
			n.each(visit)
		case *file:
			visit(n)
		}
	}
}
