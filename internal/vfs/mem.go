package vfs

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"sync"
)

// ErrCrashed is what every call on a Mem returns after Crash or Restart.
var ErrCrashed = errors.New("the machine has crashed")

// Op names a call for the error injection hook.
type Op string

// The calls that a hook can fail.
const (
	OpCreate      Op = "create"
	OpOpen        Op = "open"
	OpRead        Op = "read"
	OpWrite       Op = "write"
	OpPreallocate Op = "preallocate"
	OpSync        Op = "sync"
	OpRename      Op = "rename"
	OpRemove      Op = "remove"
	OpList        Op = "list"
	OpMkdir       Op = "mkdir"
	OpSyncDir     Op = "syncdir"
	OpLock        Op = "lock"
)

// Mem is a strict file system in memory. Directories are durable as soon as
// they are made; names in them are not before SyncDir, contents not before
// Sync.
type Mem struct {
	mu      sync.Mutex
	dirs    map[string]*memDir
	locks   map[string]bool
	hook    func(op Op, name string) error
	crashed bool
}

// NewMem returns an empty file system.
func NewMem() *Mem {
	return &Mem{dirs: map[string]*memDir{}, locks: map[string]bool{}}
}

// Inject makes every call ask hook first, and fail with the hook's error if
// it returns one. The hook runs under the file system's lock and must not
// call into it. nil removes the hook.
func (m *Mem) Inject(hook func(op Op, name string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hook = hook
}

type memDir struct {
	names   map[string]*memInode
	durable map[string]*memInode
	pending []dirChange // since the last SyncDir, in order
}

// dirChange removes the name removed, if not empty, and adds node as added,
// if not empty; both at once, so that a rename is atomic.
type dirChange struct {
	removed, added string
	node           *memInode
}

func (c dirChange) apply(names map[string]*memInode) {
	if c.removed != "" {
		delete(names, c.removed)
	}
	if c.added != "" {
		names[c.added] = c.node
	}
}

func (d *memDir) change(c dirChange) {
	c.apply(d.names)
	d.pending = append(d.pending, c)
}

// enter checks what every call checks; the caller holds mu.
func (m *Mem) enter(op Op, name string) error {
	var err error
	switch {
	case m.crashed:
		err = ErrCrashed
	case m.hook != nil:
		err = m.hook(op, name)
	}
	if err != nil {
		return &fs.PathError{Op: string(op), Path: name, Err: err}
	}
	return nil
}

func (m *Mem) dir(op Op, name string) (*memDir, error) {
	d := m.dirs[path.Clean(name)]
	if d == nil {
		return nil, &fs.PathError{Op: string(op), Path: name, Err: fs.ErrNotExist}
	}
	return d, nil
}

// find returns the directory of a file and the file's name in it.
func (m *Mem) find(op Op, name string) (*memDir, string, error) {
	if err := m.enter(op, name); err != nil {
		return nil, "", err
	}
	dir, base := path.Split(path.Clean(name))
	d, err := m.dir(op, dir)
	return d, base, err
}

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.find(OpCreate, name)
	if err != nil {
		return nil, err
	}
	if d.names[base] != nil {
		return nil, &fs.PathError{Op: string(OpCreate), Path: name, Err: fs.ErrExist}
	}
	node := newMemInode()
	d.change(dirChange{added: base, node: node})
	return &memFile{fs: m, name: name, node: node}, nil
}

// Open implements FS.
func (m *Mem) Open(name string) (File, error) { return m.open(name, false) }

// OpenRead implements FS.
func (m *Mem) OpenRead(name string) (File, error) { return m.open(name, true) }

func (m *Mem) open(name string, readOnly bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.find(OpOpen, name)
	if err != nil {
		return nil, err
	}
	node := d.names[base]
	if node == nil {
		return nil, &fs.PathError{Op: string(OpOpen), Path: name, Err: fs.ErrNotExist}
	}
	return &memFile{fs: m, name: name, node: node, readOnly: readOnly}, nil
}

// Rename implements FS, within one directory.
func (m *Mem) Rename(oldname, newname string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.find(OpRename, oldname)
	if err != nil {
		return err
	}
	dir, newbase := path.Split(path.Clean(newname))
	if m.dirs[path.Clean(dir)] != d {
		return &fs.PathError{Op: string(OpRename), Path: newname, Err: errors.ErrUnsupported}
	}
	node := d.names[base]
	if node == nil {
		return &fs.PathError{Op: string(OpRename), Path: oldname, Err: fs.ErrNotExist}
	}
	d.change(dirChange{removed: base, added: newbase, node: node})
	return nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.find(OpRemove, name)
	if err != nil {
		return err
	}
	if d.names[base] == nil {
		return &fs.PathError{Op: string(OpRemove), Path: name, Err: fs.ErrNotExist}
	}
	d.change(dirChange{removed: base})
	return nil
}

// List implements FS.
func (m *Mem) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter(OpList, dir); err != nil {
		return nil, err
	}
	d, err := m.dir(OpList, dir)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(d.names)), nil
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter(OpMkdir, dir); err != nil {
		return err
	}
	for dir = path.Clean(dir); m.dirs[dir] == nil; dir = path.Dir(dir) {
		m.dirs[dir] = &memDir{names: map[string]*memInode{}, durable: map[string]*memInode{}}
	}
	return nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter(OpSyncDir, dir); err != nil {
		return err
	}
	d, err := m.dir(OpSyncDir, dir)
	if err != nil {
		return err
	}
	d.durable = maps.Clone(d.names)
	d.pending = nil
	return nil
}

// Lock implements FS; the process is the Mem.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, _, err := m.find(OpLock, name); err != nil {
		return nil, err
	}
	name = path.Clean(name)
	if m.locks[name] {
		return nil, &fs.PathError{Op: string(OpLock), Path: name, Err: ErrLocked}
	}
	m.locks[name] = true
	return &memLock{fs: m, name: name}, nil
}

type memLock struct {
	fs   *Mem
	name string
}

func (l *memLock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	delete(l.fs.locks, l.name)
	return nil
}
