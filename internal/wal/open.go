package wal

import (
	"bytes"
	"errors"
	"fmt"
	"path"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/vfs"
)

// Open opens the log in o.Dir, or begins one, and passes every record in order
// to replay, whose data is valid only during the call. It cuts a torn tail and
// refuses any other damage with a *DamageError. When it returns, everything
// replayed is durable.
func Open(o Options, replay func(Record) error) (*WAL, error) {
	if o.FS == nil {
		o.FS = vfs.OS()
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if len(o.Metadata) > maxMetadata {
		return nil, fmt.Errorf("opening the write-ahead log: %d bytes of metadata are too much", len(o.Metadata))
	}
	w := &WAL{o: o, log: o.Logger}
	if err := w.open(replay); err != nil {
		if w.file != nil {
			err = errors.Join(err, w.file.Close())
		}
		if w.lock != nil {
			err = errors.Join(err, w.lock.Close())
		}
		return nil, fmt.Errorf("opening the write-ahead log in %s: %w", o.Dir, err)
	}
	return w, nil
}

func (w *WAL) open(replay func(Record) error) error {
	if err := w.takeDir(); err != nil {
		return err
	}
	numbers, temps, err := listSegments(w.o.FS, w.o.Dir)
	if err != nil {
		return err
	}
	for _, name := range temps {
		if err := w.o.FS.Remove(name); err != nil {
			return fmt.Errorf("removing an unfinished segment: %w", err)
		}
	}
	if len(numbers) == 0 {
		return w.begin()
	}
	var last *reader
	for _, number := range numbers {
		r, err := w.openSegment(number)
		if last != nil {
			if err == nil {
				err = last.readWhole(&r.segmentHead, last.replaying(replay))
				r.win.buf = last.win.buf[:0]
			}
			err = errors.Join(err, last.win.file.Close())
		}
		if err != nil {
			return err
		}
		last = r
	}
	return w.recoverTail(last, replay)
}

func (w *WAL) own(metadata []byte) bool {
	if w.o.Own != nil {
		return w.o.Own(metadata)
	}
	return bytes.Equal(metadata, w.o.Metadata)
}

// takeDir makes the directory if necessary, and locks it for this process.
func (w *WAL) takeDir() error {
	if err := w.o.FS.MkdirAll(w.o.Dir); err != nil {
		return err
	}
	var err error
	w.lock, err = w.o.FS.Lock(path.Join(w.o.Dir, lockName))
	return err
}

// begin creates the first segment of a new log.
func (w *WAL) begin() error {
	if w.o.MustExist {
		return ErrMissing
	}
	h := segmentHead{number: 1, size: segmentSize(w.o.SegmentBytes, w.o.Metadata, 0), metadata: w.o.Metadata}
	s, f, err := createSegment(w.o.FS, w.o.Dir, h, func(uint32, int64) []byte { return nil })
	if err != nil {
		return err
	}
	w.file, w.segments = f, []*segment{s}
	w.chain = s.seed
	w.setDurable(s)
	return nil
}

// openSegment opens the next segment, which Open closes if anything goes
// wrong from here on.
func (w *WAL) openSegment(number uint64) (*reader, error) {
	name := path.Join(w.o.Dir, segmentName(number))
	f, err := w.o.FS.Open(name)
	if err != nil {
		return nil, fmt.Errorf("opening log segment: %w", err)
	}
	r, err := openReader(f, name)
	if err == nil && !w.own(r.metadata) {
		err = fmt.Errorf("%w: %s was written by %q, this is %q", ErrMetadataMismatch, name, r.metadata, w.o.Metadata)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	w.file, w.segments = f, append(w.segments, r.segment)
	return r, nil
}

// recoverTail reads the last segment, cuts its torn tail, and makes what it
// has replayed durable: it may have been read from the page cache, on a
// machine that kept running after the server was killed or whose disk failed
// to write it.
func (w *WAL) recoverTail(r *reader, replay func(Record) error) error {
	torn, why, err := r.readTail(r.replaying(replay))
	if err != nil {
		return err
	}
	if to := w.o.Reaches; (Place{r.number, r.end}).Less(to) {
		return &DamageError{r.path, r.end, endsEarly(why, to)}
	}
	if torn > r.end {
		w.log.Warn("cut a torn tail off the write-ahead log: its last write never finished, and nothing in it was acknowledged",
			zap.String("file", r.path), zap.Int64("offset", r.end), zap.Int64("bytes", torn-r.end), zap.String("found", why))
	}
	if err := r.rewrite(torn); err != nil {
		return fmt.Errorf("repairing log segment %s: %w", r.path, err)
	}
	// A server that was killed between renaming a segment and syncing the
	// directory has left a name that a power failure would still take away.
	if err := w.o.FS.SyncDir(w.o.Dir); err != nil {
		return err
	}
	w.chain = r.chain
	w.setDurable(r.segment)
	return nil
}

func endsEarly(why string, to Place) string {
	if why == "" {
		why = "the log ends here"
	}
	return fmt.Sprintf("%s; the state file has seen it synced up to offset %d of %s. If nothing is wrong there, the log is an older copy",
		why, to.Offset, segmentName(to.Segment))
}

// rewrite writes again the frames that no later frame proves to be on the
// disk, then zeros up to torn, and syncs. Writing again matters after a
// failed sync: the kernel drops the dirty marks of pages that it couldn't
// write, so that syncing alone would succeed and leave them lost. The zeros
// matter because frames behind the end must not come back after the next
// crash.
func (r *reader) rewrite(torn int64) error {
	for at := r.durable; at < r.end; {
		b, err := r.win.bytes(at, min(windowBytes, r.end-at))
		if err != nil {
			return err
		}
		if _, err := r.win.file.WriteAt(b, at); err != nil {
			return err
		}
		at += int64(len(b))
	}
	for at := r.end; at < torn; {
		n, err := r.win.file.WriteAt(zeros[:min(int64(len(zeros)), torn-at)], at)
		if err != nil {
			return err
		}
		at += int64(n)
	}
	return r.win.file.Sync()
}
