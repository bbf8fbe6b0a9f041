package backend

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/store"
)

// Address space, not memory, is reserved for a file as large as the quota lets it become, and a quarter more: the least for
// a quota below, or none. While the file stays below that, a flush never has to wait for open readers in order to map more,
// nor other readers for the flush. A slow client may read a backup for hours.
const (
	leastReserved = 10 << 30
	mostReserved  = 128 << 30 // some machines have no more than 512 GiB
)

func reserved(quota int64) int {
	quota = min(quota, mostReserved)
	return int(min(max(leastReserved, quota+quota/4), mostReserved))
}

const lockTimeout = time.Second

// largePage is the size of the pages of a new file, in bytes. bbolt writes pages one
// system call each: with the 4 KiB of its default a flush of 500 puts of 256 bytes
// took 4.9 µs of CPU for each, with 16 KiB 2.8 µs, and one of 5 puts no more. A file
// that was made with another size, as etcd's are, keeps it until it is defragmented.
const largePage = 16 << 10

// pageSize keeps the small pages for a file with a small quota: an empty file
// alone is five.
func pageSize(quota int64) int {
	if quota > 0 && quota < 1024*largePage {
		return os.Getpagesize()
	}
	return largePage
}

// file is the bbolt engine.
type file struct {
	path    string
	page    int // bytes, of a new file
	reserve int // bytes
	noSync  bool
	ro      bool
	lg      *zap.Logger

	flushing sync.Mutex   // one update or defragmentation at a time
	mu       sync.RWMutex // guards db itself, held no longer than to begin a transaction
	db       *database
	failed   error // closed, or could not be reopened after a defragmentation

	total, inUse atomic.Int64
	uses         atomic.Uint64 // transactions, since the file was opened
}

// database is bbolt's, and counts the transactions that read it: its Close takes a lock that they need to end, and
// then waits for the slowest, so it is called when none is left.
type database struct {
	*bolt.DB
	readers sync.WaitGroup
}

func openDatabase(path string, o *bolt.Options) (*database, error) {
	db, err := bolt.Open(path, 0o600, o)
	if err != nil {
		return nil, err
	}
	return &database{DB: db}, nil
}

func (d *database) closeUnread() error {
	d.readers.Wait()
	return d.Close()
}

// readTx is a transaction that reads.
type readTx struct {
	*bolt.Tx
	of *database
}

func (t readTx) Rollback() error {
	err := t.Tx.Rollback()
	if err == nil {
		t.of.readers.Done()
	}
	return err
}

func (f *file) options() *bolt.Options {
	o := &bolt.Options{
		Timeout:        lockTimeout,
		PageSize:       f.page,
		NoFreelistSync: true, // it is rebuilt at open; writing it costs every flush
		FreelistType:   bolt.FreelistMapType,
		NoSync:         f.noSync,
		ReadOnly:       f.ro,
	}
	if !f.ro {
		o.InitialMmapSize = f.reserve
	}
	return o
}

// openFile opens an existing file that has passed check.
func openFile(path string, o Options) (*file, error) {
	f := &file{path: path, page: pageSize(o.Quota), reserve: reserved(o.Quota), noSync: o.NoSync, ro: o.ReadOnly, lg: o.Logger}
	err := guard(path, nil, f.open)
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, fmt.Errorf("open %s: %w", path, ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	f.measure()
	return f, nil
}

// open opens the file and makes sure that what is seen in it is on the disk, its name
// included: a server may have been killed right after it had installed a snapshot.
func (f *file) open() (err error) {
	var raw *os.File
	o := f.options()
	o.OpenFile = func(name string, flag int, perm os.FileMode) (_ *os.File, err error) {
		raw, err = os.OpenFile(name, flag, perm)
		return raw, err
	}
	if f.db, err = openDatabase(f.path, o); err != nil || f.ro || f.noSync {
		return err
	}
	if err = settle(raw); err == nil {
		err = syncDir(filepath.Dir(f.path))
	}
	if err != nil {
		return errors.Join(err, f.db.Close())
	}
	return nil
}

// guard turns bbolt's panics over a broken page, and faults in the mapped file
// (which shrank, or can't be read), into an error that names the file. A panic
// of a caller's function passes.
func guard(path string, tx *boltTx, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		if _, fault := r.(interface{ Addr() uintptr }); !fault && tx != nil && tx.inCallback {
			panic(r)
		}
		err = fmt.Errorf("%s: %w: %v", path, ErrDamaged, r)
	}()
	return fn()
}

func (f *file) begin() (readTx, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.failed != nil {
		return readTx{}, f.failed
	}
	tx, err := f.db.Begin(false)
	if err != nil {
		return readTx{}, fmt.Errorf("%s: %w", f.path, err)
	}
	f.db.readers.Add(1)
	return readTx{tx, f.db}, nil
}

func (f *file) view(fn func(reader) error) error {
	tx, err := f.begin()
	if err != nil {
		return err
	}
	defer f.used()
	defer tx.Rollback() //nolint:errcheck // a read transaction has nothing to lose
	t := &boltTx{tx: tx.Tx}
	return guard(f.path, t, func() error { return fn(t) })
}

func (f *file) update(fn func(writer) error) error {
	f.flushing.Lock()
	defer f.flushing.Unlock()
	if f.failed != nil {
		return f.failed
	}
	err := guard(f.path, nil, func() error {
		return f.db.Update(func(tx *bolt.Tx) error { return fn(&boltTx{tx: tx}) })
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", f.path, err)
	}
	f.measure()
	f.used()
	return nil
}

func (f *file) stats() bolt.Stats {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.db.Stats()
}

func (f *file) size() (total, inUse int64) { return f.total.Load(), f.inUse.Load() }

// measure records the sizes after each operation that may have changed them,
// so that reading them is cheap: quotas are checked for every write.
func (f *file) measure() {
	tx, err := f.db.Begin(false)
	if err != nil {
		return
	}
	defer tx.Rollback() //nolint:errcheck // as above
	f.total.Store(tx.Size())
	f.inUse.Store(tx.Size() - int64(f.db.Stats().FreePageN)*int64(f.db.Info().PageSize))
}

// closeTimeout bounds the time that close waits for readers.
const closeTimeout = 500 * time.Millisecond

// close refuses new readers and waits for the present ones up to
// closeTimeout. A snapshot being sent to a slow peer must not hold up a
// shutdown or the installation of another file; it keeps the old one until it
// ends.
func (f *file) close() error {
	f.flushing.Lock()
	defer f.flushing.Unlock()
	f.mu.Lock()
	if f.failed != nil {
		f.mu.Unlock()
		return nil
	}
	f.failed = fmt.Errorf("%s: %w", f.path, store.ErrClosed)
	db := f.db
	f.mu.Unlock()
	done := make(chan error, 1)
	go func() { done <- db.closeUnread() }()
	select {
	case err := <-done:
		return err
	case <-time.After(closeTimeout):
		f.lg.Warn("the backend file is still being read; it is closed when that ends", zap.String("path", f.path))
		return nil
	}
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// boltTx is a transaction as the schema sees it.
type boltTx struct {
	tx   *bolt.Tx
	name string
	last *bolt.Bucket // most calls in a row are for one bucket

	inCallback bool
}

func (t *boltTx) bucket(name string) *bolt.Bucket {
	if t.last == nil || t.name != name {
		t.name, t.last = name, t.tx.Bucket([]byte(name))
		if t.last != nil {
			t.last.FillPercent = 0.9 // keys come in order
		}
	}
	return t.last
}

func (t *boltTx) buckets() []string {
	var names []string
	c := t.tx.Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		names = append(names, string(k))
	}
	return names
}

func (t *boltTx) get(bucket string, key []byte) []byte {
	if b := t.bucket(bucket); b != nil {
		return b.Get(key)
	}
	return nil
}

func (t *boltTx) ascend(bucket string, from []byte, fn func(k, v []byte) bool) {
	b := t.bucket(bucket)
	if b == nil {
		return
	}
	c := b.Cursor()
	for k, v := c.Seek(from); k != nil; k, v = c.Next() {
		t.inCallback = true
		more := fn(k, v)
		t.inCallback = false
		if !more {
			return
		}
	}
}

func (t *boltTx) create(bucket string) error {
	_, err := t.tx.CreateBucketIfNotExists([]byte(bucket))
	return err
}

func (t *boltTx) put(bucket string, key, value []byte) error {
	b := t.bucket(bucket)
	if b == nil {
		return fmt.Errorf("bucket %q is missing", bucket)
	}
	return b.Put(key, value)
}

func (t *boltTx) remove(bucket string, key []byte) error {
	b := t.bucket(bucket)
	if b == nil {
		return fmt.Errorf("bucket %q is missing", bucket)
	}
	return b.Delete(key)
}

// boltSnapshot is a read transaction kept open.
type boltSnapshot struct {
	tx readTx
	f  *file
}

func (f *file) snapshot() (engineSnapshot, error) {
	tx, err := f.begin()
	if err != nil {
		return nil, err
	}
	return &boltSnapshot{tx: tx, f: f}, nil
}

func (s *boltSnapshot) reader() reader { return &boltTx{tx: s.tx.Tx} }
func (s *boltSnapshot) size() int64    { return s.tx.Size() }
func (s *boltSnapshot) close() error   { return s.tx.Rollback() }

func (s *boltSnapshot) WriteTo(w io.Writer) (n int64, err error) {
	err = guard(s.f.path, nil, func() error {
		n, err = s.tx.WriteTo(w)
		return err
	})
	return n, err
}
