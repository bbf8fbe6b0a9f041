package backend

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"syscall"
	"time"
)

// bbolt's file format (its internal/common): two meta pages, then a tree of
// branch and leaf pages for each bucket. bbolt walks the tree when it opens a
// file, but it trusts the bounds that it reads, and even after an error that
// it finds its goroutine runs on and may panic where it can't be recovered.
// So everything that could make it fail is checked here first, by plain
// reads: page numbers, kinds, bounds of every element, order of keys, no page
// in two places, nothing beyond the end of the file.
const (
	pageHeader    = 16
	elementSize   = 16
	metaSize      = 64
	bucketHeader  = 16
	boltMagic     = 0xED0CDAED
	boltVersion   = 2
	flagBranch    = 0x01
	flagLeaf      = 0x02
	elementBucket = 0x01
	maxPageSize   = 64 << 10
	maxKeyEnd     = 64 << 10 // a page's first key ends before; bbolt takes keys up to 32 KiB
)

var le = binary.LittleEndian // bbolt writes the machine's order; every platform we build for is this

// check walks the file's structure.
func check(path string) error { return checkPaced(path, nil) }

// checkPages is the number of pages between two pauses of a paced check.
const checkPages = 32

// checkPaced is check with pauses, unless pace is nil.
func checkPaced(path string, pace *pace) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("check backend: %w", err)
	}
	defer f.Close()
	if err := lockShared(f); err != nil {
		return fmt.Errorf("check %s: %w", path, err)
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("check backend: %w", err)
	}
	c := checker{file: f, size: info.Size(), pace: pace}
	if err := c.run(); err != nil {
		return fmt.Errorf("%s: %w: %w", path, ErrDamaged, err)
	}
	return nil
}

// lockShared keeps a running server from writing while we look.
func lockShared(f *os.File) error {
	for end := time.Now().Add(lockTimeout); ; time.Sleep(20 * time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		if time.Now().After(end) {
			return ErrInUse
		}
	}
}

type checker struct {
	file     io.ReaderAt
	size     int64
	pageSize int64
	pages    uint64 // high-water mark
	seen     []bool
	pace     *pace // nil: no pauses
	since    int   // the last pause, pages
}

// meta holds the needed fields of a meta page.
type metaPage struct {
	pageSize          uint32
	root, pages, txid uint64
}

func (c *checker) run() error {
	m, err := c.newestMeta()
	if err != nil {
		return err
	}
	c.pageSize, c.pages = int64(m.pageSize), m.pages
	if need := int64(m.pages) * c.pageSize; m.pages > 1<<40 || c.size < need {
		return fmt.Errorf("it ends at offset %d, before its last page at %d", c.size, need-c.pageSize)
	}
	c.seen = make([]bool, m.pages)
	return c.tree(m.root, bounds{})
}

// newestMeta returns the valid meta page with the highest transaction: a crash
// while one was being written leaves the other.
func (c *checker) newestMeta() (best metaPage, err error) {
	found := false
	first, ok := c.meta(0)
	if ok {
		best, found = first, true
	}
	for size := int64(1024); size <= maxPageSize; size *= 2 {
		if ok && size != int64(first.pageSize) {
			continue
		}
		if m, valid := c.meta(size); valid && int64(m.pageSize) == size && (!found || m.txid > best.txid) {
			best, found = m, true
		}
	}
	if !found {
		return best, errors.New("neither header, at offset 0 or one page on, is valid")
	}
	return best, nil
}

func (c *checker) meta(offset int64) (m metaPage, ok bool) {
	var b [pageHeader + metaSize]byte
	if _, err := c.file.ReadAt(b[:], offset); err != nil {
		return m, false
	}
	v := b[pageHeader:]
	h := fnv.New64a()
	h.Write(v[:56])
	m = metaPage{
		pageSize: le.Uint32(v[8:]),
		root:     le.Uint64(v[16:]),
		pages:    le.Uint64(v[40:]),
		txid:     le.Uint64(v[48:]),
	}
	ok = le.Uint32(v) == boltMagic && le.Uint32(v[4:]) == boltVersion && le.Uint64(v[56:]) == h.Sum64() &&
		m.pageSize >= 1024 && m.pageSize <= maxPageSize
	return m, ok
}

// bounds limit the keys below a branch: least <= key < end. nil is no bound.
type bounds struct{ least, end []byte }

// tree checks the page id and all below it.
func (c *checker) tree(id uint64, in bounds) error {
	offset := int64(id) * c.pageSize
	if id < 2 || id >= c.pages {
		return fmt.Errorf("a branch leads to page %d of %d", id, c.pages)
	}
	if c.seen[id] {
		return fmt.Errorf("page %d at offset %d is in two places", id, offset)
	}
	c.seen[id] = true
	c.rest()
	page := make([]byte, c.pageSize)
	if _, err := c.file.ReadAt(page, offset); err != nil {
		return fmt.Errorf("page %d at offset %d: %w", id, offset, err)
	}
	overflow := uint64(le.Uint32(page[12:]))
	switch {
	case le.Uint64(page) != id:
		return fmt.Errorf("page %d at offset %d says that it is page %d", id, offset, le.Uint64(page))
	case id+overflow >= c.pages:
		return fmt.Errorf("page %d at offset %d goes on for %d pages, past the last", id, offset, overflow)
	}
	for i := id + 1; i <= id+overflow; i++ {
		if c.seen[i] {
			return fmt.Errorf("page %d at offset %d is in two places", i, int64(i)*c.pageSize)
		}
		c.seen[i] = true
	}
	if err := c.page(page, offset, int64(overflow+1)*c.pageSize, in); err != nil {
		return fmt.Errorf("page %d at offset %d: %w", id, offset, err)
	}
	return nil
}

// rest pauses after every so many pages.
func (c *checker) rest() {
	if c.since++; c.pace != nil && c.since >= checkPages {
		c.since = 0
		c.pace.pause()
	}
}

// page checks a page's elements. b is its beginning, the rest of its length
// bytes is at offset in the file (-1: there is no rest).
func (c *checker) page(b []byte, offset, length int64, in bounds) error {
	flags, count := le.Uint16(b[8:]), int64(le.Uint16(b[10:]))
	if flags != flagBranch && flags != flagLeaf {
		return fmt.Errorf("it is of no known kind (%#x)", flags)
	}
	if pageHeader+count*elementSize > length {
		return fmt.Errorf("%d elements don't fit", count)
	}
	need := length // keys may lie anywhere
	if count == 1 {
		need = min(length, maxKeyEnd) // one large value: no need to read it
	}
	if int64(len(b)) < need {
		b = make([]byte, need)
		if _, err := c.file.ReadAt(b, offset); err != nil {
			return err
		}
	}
	var children []element
	least := in.least
	for i := range count {
		e, err := c.element(b, i, length, flags == flagBranch)
		if err != nil {
			return err
		}
		cmp := bytes.Compare(least, e.key)
		if least != nil && (cmp > 0 || cmp == 0 && i > 0) || in.end != nil && bytes.Compare(e.key, in.end) >= 0 {
			return fmt.Errorf("key %x of element %d is out of order", e.key, i)
		}
		if least = e.key; least == nil {
			least = []byte{}
		}
		if flags == flagBranch || e.flags&elementBucket != 0 {
			children = append(children, e)
		}
	}
	for i, e := range children {
		if flags == flagLeaf {
			if err := c.bucket(b, offset, e); err != nil {
				return fmt.Errorf("bucket %q: %w", e.key, err)
			}
			continue
		}
		below := bounds{e.key, in.end}
		if i+1 < len(children) {
			below.end = children[i+1].key
		}
		if err := c.tree(e.child, below); err != nil {
			return err
		}
	}
	return nil
}

// element is one element of a page.
type element struct {
	key         []byte
	child       uint64 // of a branch
	flags       uint32 // of a leaf
	value, size int64  // of a leaf: where its value lies on the page
}

func (c *checker) element(b []byte, i, length int64, branch bool) (e element, err error) {
	at := pageHeader + i*elementSize
	h := b[at : at+elementSize]
	var pos, ksize int64
	if branch {
		pos, ksize, e.child = int64(le.Uint32(h)), int64(le.Uint32(h[4:])), le.Uint64(h[8:])
	} else {
		e.flags = le.Uint32(h)
		pos, ksize, e.size = int64(le.Uint32(h[4:])), int64(le.Uint32(h[8:])), int64(le.Uint32(h[12:]))
	}
	e.value = at + pos + ksize
	if e.value+e.size > length || e.value > int64(len(b)) {
		return e, fmt.Errorf("element %d lies outside", i)
	}
	e.key = b[at+pos : e.value]
	return e, nil
}

// bucket checks a bucket whose header is an element's value: it has a tree of
// its own or, if it is small, a page inside the value.
func (c *checker) bucket(b []byte, offset int64, e element) error {
	if e.size < bucketHeader {
		return errors.New("it has no header")
	}
	var v []byte
	switch {
	case e.value+e.size <= int64(len(b)):
		v = b[e.value : e.value+e.size]
	case offset < 0:
		return errors.New("it lies outside")
	default:
		v = make([]byte, e.size)
		if _, err := c.file.ReadAt(v, offset+e.value); err != nil {
			return err
		}
	}
	if root := le.Uint64(v); root != 0 {
		return c.tree(root, bounds{})
	}
	v = v[bucketHeader:]
	if len(v) < pageHeader || le.Uint16(v[8:]) != flagLeaf {
		return errors.New("its page inside is not a leaf")
	}
	return c.page(v, -1, int64(len(v)), bounds{})
}
