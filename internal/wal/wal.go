package wal

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/vfs"
)

// DefaultSegmentBytes is large enough to make a rotation rare, and small
// enough that a log without needed records can be mostly deleted.
const DefaultSegmentBytes = 64 << 20

// keepBuffer bounds the encoding buffer that outlives an Append.
const keepBuffer = 4 << 20

// ErrMetadataMismatch is returned for a log that belongs to another server.
var ErrMetadataMismatch = errors.New("the log belongs to another server or cluster")

// ErrMissing is returned when Options.MustExist is set and there is no log.
var ErrMissing = errors.New("the log is missing")

// errClosed is the error of a closed log.
var errClosed = errors.New("the log is closed")

// Options configure Open.
type Options struct {
	FS           vfs.FS // the operating system's if nil
	Dir          string
	SegmentBytes int64 // DefaultSegmentBytes if 0
	// Metadata is written at the head of every segment and compared at Open.
	Metadata []byte
	// Own tells whether the metadata at the head of a segment is this server's; nil: if it
	// is equal to Metadata.
	Own func(metadata []byte) bool
	// MustExist: the server has state that was written along with a log;
	// without it fail with ErrMissing, since a new log would have lost votes
	// and entries.
	MustExist bool
	// Reaches is a place that [WAL.Durable] has returned for this log: one that ends before
	// it is damaged there, or an older copy. The zero Place is before all.
	Reaches Place
	// Head returns the records that are repeated at the head of each new
	// segment, so that the old ones need not be kept. It is called inside
	// Append. The records may be ahead of those appended so far.
	Head   func() []Record
	Logger *zap.Logger // none if nil
}

// Place is a place in the log: an offset in bytes in the file of a segment.
type Place struct {
	Segment uint64
	Offset  int64
}

// Less reports whether p is before o.
func (p Place) Less(o Place) bool {
	return p.Segment < o.Segment || p.Segment == o.Segment && p.Offset < o.Offset
}

// WAL is the log. Append, Sync and Close are called by one goroutine; Release,
// Behind, Durable, Size and Segments by any.
type WAL struct {
	o    Options
	log  *zap.Logger
	lock io.Closer

	// Used by the writer only.
	file    vfs.File
	buf     []byte
	written int64
	chain   uint32
	durable int64 // offset in the last segment

	releasing sync.Mutex // one Release at a time

	mu       sync.Mutex
	segments []*segment // never empty; the last is written to
	synced   Place
	err      error // the first error, returned by all later calls
}

// Append appends recs with one write. They are durable after the next Sync.
// The data is not retained.
func (w *WAL) Append(recs []Record) error {
	if err := w.failed(); err != nil || len(recs) == 0 {
		return err
	}
	b := append(w.buf[:0], make([]byte, frameHeadBytes)...)
	for i := range recs {
		b = appendRecord(b, &recs[i])
	}
	if int64(len(b)) > maxFrameBytes {
		return w.fail(fmt.Errorf("a batch of %d bytes is more than a frame can hold", len(b)))
	}
	if cap(b) <= keepBuffer {
		w.buf = b
	}
	s := w.tail()
	if need := align(int64(len(b))); s.end+need+frameHeadBytes > s.size {
		next, err := w.rotate(need)
		if err != nil {
			return w.fail(fmt.Errorf("continuing after segment %s: %w", s.path, err))
		}
		s = next
	}
	if err := w.write(s, b, frameRecords); err != nil {
		return err
	}
	if err := w.zeroAhead(s, len(b)); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range recs {
		s.note(&recs[i])
	}
	return nil
}

// write puts one frame at the end of s; there must be room.
func (w *WAL) write(s *segment, b []byte, kind frameType) error {
	b, chain := finishFrame(b, kind, s.seed, w.chain, w.durable)
	if _, err := w.file.WriteAt(b, s.end); err != nil {
		return w.fail(fmt.Errorf("writing %d bytes at offset %d of %s: %w", len(b), s.end, s.path, err))
	}
	w.chain = chain
	w.written += int64(len(b))
	w.mu.Lock()
	defer w.mu.Unlock()
	s.end += int64(len(b))
	return nil
}

// zeroAhead writes zeros behind the last frame, of n bytes, when it is the
// first behind those written before. The room there is allocated, but a file
// system notes in its journal which of it has been written for the first
// time, and a sync that has to wait for that takes twice as long: therefore
// only one sync in many does.
func (w *WAL) zeroAhead(s *segment, n int) error {
	if n > maxZeroAhead { // it pays for its journal entry
		s.ahead = minZeroAhead
		return nil
	}
	if s.end <= s.zeroed {
		return nil
	}
	ahead := min(int64(max(s.ahead, minZeroAhead)), s.size-s.end)
	if _, err := w.file.WriteAt(zeros[:ahead], s.end); err != nil {
		return w.fail(fmt.Errorf("writing %d zeros at offset %d of %s: %w", ahead, s.end, s.path, err))
	}
	s.zeroed = s.end + ahead
	s.ahead = min(2*int(ahead), len(zeros))
	return nil
}

// Behind a frame of up to maxZeroAhead bytes zeros are written ahead, first
// minZeroAhead of them and then twice as many each time, up to all of them,
// until a large frame comes again: it overwrites the remaining ones, and
// among large frames the log would be written twice.
const (
	minZeroAhead = 32 << 10
	maxZeroAhead = 64 << 10
)

// Sync returns when all that was appended is durable.
func (w *WAL) Sync() error {
	if err := w.failed(); err != nil {
		return err
	}
	s := w.tail()
	if w.durable == s.end {
		return nil
	}
	if err := w.file.Sync(); err != nil {
		return w.fail(fmt.Errorf("syncing %s up to offset %d: %w", s.path, s.end, err))
	}
	w.setDurable(s)
	return nil
}

// setDurable notes that a sync has covered all of s, the last segment.
func (w *WAL) setDurable(s *segment) {
	w.durable = s.end
	w.mu.Lock()
	defer w.mu.Unlock()
	w.synced = Place{s.number, s.end}
}

// Durable is the end of what is durable.
func (w *WAL) Durable() Place {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.synced
}

// Close syncs what was appended and leaves a mark that says so, by which the
// next Open can tell damage in the last frames from a torn tail.
func (w *WAL) Close() error {
	w.releasing.Lock() // the directory must not change once the lock is gone
	defer w.releasing.Unlock()
	err := w.Sync()
	if s := w.tail(); err == nil && s.end+2*frameHeadBytes <= s.size {
		err = w.write(s, make([]byte, frameHeadBytes), frameMark)
		if err == nil {
			err = w.Sync()
		}
	}
	if errors.Is(err, errClosed) {
		return nil
	}
	w.fail(errClosed)
	return errors.Join(err, w.file.Close(), w.lock.Close())
}

// Written is the number of bytes that this WAL has written; for the goroutine that appends.
func (w *WAL) Written() int64 { return w.written }

// Size is the number of bytes of all segments that hold something.
func (w *WAL) Size() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	var sum int64
	for _, s := range w.segments {
		sum += s.end
	}
	return sum
}

// Segments is the number of files.
func (w *WAL) Segments() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.segments)
}

func (w *WAL) tail() *segment {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.segments[len(w.segments)-1]
}

func (w *WAL) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// fail makes err the error of all later calls, unless there is one already,
// and returns that error.
func (w *WAL) fail(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = fmt.Errorf("write-ahead log: %w", err)
	}
	return w.err
}
