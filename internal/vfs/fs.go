package vfs

import "io"

// FS is safe for concurrent use. Names are slash-separated paths.
type FS interface {
	// Create makes a new empty file for reading and writing; a file that is
	// there is an error. The name is durable only after SyncDir.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// OpenRead opens an existing file for reading only.
	OpenRead(name string) (File, error)
	// Rename replaces the file newname; durable only after SyncDir.
	Rename(oldname, newname string) error
	// Remove is durable only after SyncDir.
	Remove(name string) error
	// List returns the names of the files in dir, sorted, without dir.
	List(dir string) ([]string, error)
	// MkdirAll makes dir and its missing parents, durably.
	MkdirAll(dir string) error
	// SyncDir makes the names in dir durable.
	SyncDir(dir string) error
	// Lock takes the file name, creating it, for this process alone until
	// Close, or fails at once with ErrLocked. It is released when the process
	// exits.
	Lock(name string) (io.Closer, error)
}

// File is used by one goroutine at a time.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Size is the length of the file, preallocated room included.
	Size() (int64, error)
	// NextData is the first range from off on in which the content may be other than zeros, as far as the
	// file system knows without reading it, or an empty one at the end: what was preallocated need not be
	// read. It may be more after other ranges have been read, which the system reads ahead of.
	NextData(off int64) (from, to int64, err error)
	// Preallocate makes the file size bytes long, zeros where nothing has
	// been written, with room on the disk reserved if the file system can
	// do that. It must not be called with less than the present size.
	Preallocate(size int64) error
	// Sync makes the content and the length durable (fdatasync). After an
	// error the durable state is unknown, and a further Sync may succeed
	// although data is lost: the caller must not write any more.
	Sync() error
}
