package backend

import "io"

// engine is the storage below the schema: buckets of ordered keys, changed in
// transactions. bolt is the real one, mem the one of the simulation.
type engine interface {
	// view runs fn on one consistent state. Slices returned by the reader are
	// valid until fn returns.
	view(fn func(reader) error) error
	// update runs fn and makes what it wrote durable, all of it or nothing.
	// There is one caller at a time.
	update(fn func(writer) error) error
	snapshot() (engineSnapshot, error)
	size() (total, inUse int64)
	// forget releases the memory that reading has taken.
	forget()
	defragment() error
	close() error
}

type reader interface {
	// buckets returns the names of all buckets, sorted.
	buckets() []string
	get(bucket string, key []byte) []byte
	// ascend calls fn for every key at or above from until it returns false.
	ascend(bucket string, from []byte, fn func(k, v []byte) bool)
}

type writer interface {
	reader
	create(bucket string) error
	// put may keep value until the transaction ends.
	put(bucket string, key, value []byte) error
	remove(bucket string, key []byte) error
}

type engineSnapshot interface {
	io.WriterTo
	reader() reader
	size() int64
	// copy returns an engine of its own with the same content, which is gone once that is closed.
	copy() (engine, error)
	close() error
}
