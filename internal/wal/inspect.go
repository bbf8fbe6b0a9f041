package wal

import (
	"errors"
	"fmt"
	"path"

	"github.com/stoa-kv/stoa/internal/vfs"
)

// SegmentInfo describes a segment.
type SegmentInfo struct {
	File     string
	Number   uint64
	Size     int64 // of the file
	Metadata []byte
}

// FrameInfo describes a frame, the unit written by one Append.
type FrameInfo struct {
	File    string
	Offset  int64
	Size    int64
	Kind    string // "records", "mark" or "seal"
	Durable int64  // offset up to which the segment was synced when it was written
}

// Inspection holds the callbacks of Inspect. The records' data is valid only
// during the call.
type Inspection struct {
	Segment func(SegmentInfo) error
	Frame   func(FrameInfo, []Record) error
	// Torn reports a tail that Open would cut.
	Torn func(file string, offset, bytes int64, why string) error
}

// Inspect reads the log in dir without changing anything, and without the
// lock, so it may find the frame being written torn. Like Open it fails with a
// *DamageError where the log is damaged.
func Inspect(fs vfs.FS, dir string, visit Inspection) error {
	numbers, _, err := listSegments(fs, dir)
	if err != nil {
		return err
	}
	if len(numbers) == 0 {
		return fmt.Errorf("%w: no segment in %s", ErrMissing, dir)
	}
	var last *reader
	for _, number := range numbers {
		r, err := inspectSegment(fs, path.Join(dir, segmentName(number)))
		if last != nil {
			if err == nil {
				err = last.inspect(&r.segmentHead, visit)
			}
			err = errors.Join(err, last.win.file.Close())
		}
		if err != nil {
			return err
		}
		last = r
	}
	return errors.Join(last.inspect(nil, visit), last.win.file.Close())
}

func inspectSegment(fs vfs.FS, name string) (*reader, error) {
	f, err := fs.OpenRead(name)
	if err != nil {
		return nil, fmt.Errorf("opening log segment: %w", err)
	}
	r, err := openReader(f, name)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

// inspect reads one segment; next is nil for the last.
func (r *reader) inspect(next *segmentHead, visit Inspection) error {
	err := visit.Segment(SegmentInfo{File: r.path, Number: r.number, Size: r.size, Metadata: r.metadata})
	if err != nil {
		return err
	}
	each := func(at int64, f frame, recs []byte) error {
		var all []Record
		collect := func(rec Record) error { all = append(all, rec); return nil }
		if err := r.visit(at, recs, collect); err != nil {
			return err
		}
		return visit.Frame(FrameInfo{File: r.path, Offset: at, Size: f.size(), Kind: f.kind.String(), Durable: f.durable}, all)
	}
	if next != nil {
		return r.readWhole(next, each)
	}
	torn, why, err := r.readTail(each)
	if err != nil || torn == r.end {
		return err
	}
	return visit.Torn(r.path, r.end, torn-r.end, why)
}

func (k frameType) String() string {
	switch k {
	case frameRecords:
		return "records"
	case frameMark:
		return "mark"
	case frameSeal:
		return "seal"
	}
	return fmt.Sprintf("type %d", uint8(k))
}
