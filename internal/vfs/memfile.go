package vfs

import (
	"io"
	"io/fs"
	"maps"
)

// pageSize is the unit of memory, sectorSize that of a torn write: disks
// promise to write a sector whole, and nothing about several.
const (
	pageSize   = 4096
	sectorSize = 512
)

// memInode keeps pages only where something was written, so that a
// preallocated segment costs nothing.
type memInode struct {
	size        int64
	pages       map[int64][]byte
	durableSize int64
	// undo holds the durable content of every page written since the last
	// Sync; nil for zeros.
	undo   map[int64][]byte
	writes []extent // since the last Sync, in order
	// forgotten are pages in undo that a failed Sync has not written: as in a
	// kernel they count as clean, and no further Sync writes them unless they
	// are written to again.
	forgotten map[int64]bool
}

type extent struct{ off, end int64 }

func newMemInode() *memInode {
	return &memInode{pages: map[int64][]byte{}, undo: map[int64][]byte{}, forgotten: map[int64]bool{}}
}

func (n *memInode) readAt(b []byte, off int64) int {
	b = b[:min(int64(len(b)), max(0, n.size-off))]
	for done := 0; done < len(b); {
		at := off + int64(done)
		part := b[done:min(len(b), done+int(pageSize-at%pageSize))]
		if page := n.pages[at/pageSize]; page != nil {
			copy(part, page[at%pageSize:])
		} else {
			clear(part)
		}
		done += len(part)
	}
	return len(b)
}

func (n *memInode) nextData(off int64) (from, to int64) {
	skip := func(off int64, data bool) int64 {
		for off < n.size && (n.pages[off/pageSize] != nil) == data {
			off = (off/pageSize + 1) * pageSize
		}
		return min(off, n.size)
	}
	from = skip(off, false)
	return from, skip(from, true)
}

func (n *memInode) writeAt(b []byte, off int64) {
	end := off + int64(len(b))
	n.writes = append(n.writes, extent{off, end})
	n.size = max(n.size, end)
	for at := off; at < end; {
		i := at / pageSize
		delete(n.forgotten, i)
		page := n.pages[i]
		if _, dirty := n.undo[i]; !dirty {
			n.undo[i] = page
			page = append(make([]byte, 0, pageSize), page...)[:pageSize]
			n.pages[i] = page
		}
		at += int64(copy(page[at%pageSize:], b[at-off:]))
	}
}

func (n *memInode) sync() {
	n.durableSize = n.size
	for i := range n.undo {
		if !n.forgotten[i] {
			delete(n.undo, i)
		}
	}
	n.writes = nil
}

// failSync simulates a Sync that a disk error fails.
func (n *memInode) failSync() {
	for i := range n.undo {
		n.forgotten[i] = true
	}
	n.writes = nil
}

// durable returns a new inode with the durable content. Pages are shared:
// nothing writes to a page that is not in undo.
func (n *memInode) durable() *memInode {
	d := newMemInode()
	d.size, d.durableSize = n.durableSize, n.durableSize
	maps.Copy(d.pages, n.pages)
	for i, page := range n.undo {
		if page == nil {
			delete(d.pages, i)
		} else {
			d.pages[i] = page
		}
	}
	return d
}

type memFile struct {
	fs       *Mem
	name     string
	node     *memInode
	readOnly bool
	closed   bool
}

func (f *memFile) enter(op Op) error {
	if f.closed {
		return &fs.PathError{Op: string(op), Path: f.name, Err: fs.ErrClosed}
	}
	if f.readOnly && op != OpRead {
		return &fs.PathError{Op: string(op), Path: f.name, Err: fs.ErrPermission}
	}
	return f.fs.enter(op, f.name)
}

func (f *memFile) ReadAt(b []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.enter(OpRead); err != nil {
		return 0, err
	}
	n := f.node.readAt(b, off)
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(b []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.enter(OpWrite); err != nil {
		return 0, err
	}
	f.node.writeAt(b, off)
	return len(b), nil
}

func (f *memFile) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.enter(OpRead); err != nil {
		return 0, err
	}
	return f.node.size, nil
}

func (f *memFile) NextData(off int64) (from, to int64, err error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.enter(OpRead); err != nil {
		return 0, 0, err
	}
	from, to = f.node.nextData(off)
	return from, to, nil
}

func (f *memFile) Preallocate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.enter(OpPreallocate); err != nil {
		return err
	}
	f.node.size = max(f.node.size, size)
	return nil
}

func (f *memFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.enter(OpSync); err != nil {
		f.node.failSync()
		return err
	}
	f.node.sync()
	return nil
}

func (f *memFile) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.closed = true
	return nil
}
