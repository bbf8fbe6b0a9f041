package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/stoa-kv/stoa/internal/vfs"
)

// DamageError reports that durable data isn't the data that was written.
type DamageError struct {
	File   string
	Offset int64
	Reason string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("log segment %s is damaged at offset %d: %s", e.File, e.Offset, e.Reason)
}

// reader goes through the frames of one segment.
type reader struct {
	*segment
	win     window
	chain   uint32
	durable int64 // proven by a frame read so far
}

// eachFrame is called for every frame, with its offset and its records.
type eachFrame func(at int64, f frame, recs []byte) error

// openReader reads and checks the head of a segment. It takes f over.
func openReader(f vfs.File, name string) (*reader, error) {
	size, err := f.Size()
	if err != nil {
		return nil, fmt.Errorf("reading log segment %s: %w", name, err)
	}
	r := &reader{win: window{file: f, size: size}}
	b, err := r.win.bytes(0, fixedHeadBytes+maxMetadata+4)
	if err != nil {
		return nil, fmt.Errorf("reading log segment %s: %w", name, err)
	}
	h, seed, err := decodeSegmentHead(b)
	if err != nil {
		return nil, &DamageError{name, 0, err.Error()}
	}
	at := segmentHeadBytes(len(h.metadata))
	number, _ := parseSegmentName(path.Base(name))
	switch {
	case number != h.number:
		return nil, &DamageError{name, 8, fmt.Sprintf("it is segment %d under the name of %d", h.number, number)}
	case size != h.size:
		return nil, &DamageError{name, min(size, h.size),
			fmt.Sprintf("the file is %d bytes long, and was made %d bytes long", size, h.size)}
	case at > size:
		return nil, &DamageError{name, size, "the file ends inside the segment head"}
	}
	r.segment = &segment{segmentHead: h, path: name, seed: seed, end: at, last: map[uint32]uint64{}}
	r.chain, r.durable = seed, at
	return r, nil
}

// next returns the frame at r.end and the bytes of its records, and advances
// behind it; or returns the reason why there is no frame, and doesn't
// advance.
func (r *reader) next() (f frame, recs []byte, why string, err error) {
	head, err := r.win.bytes(r.end, frameHeadBytes)
	if err != nil {
		return f, nil, "", fmt.Errorf("log segment %s: %w", r.path, err)
	}
	f, ok := decodeFrameHead(head, r.seed)
	switch {
	case !ok:
		return f, nil, "the checksum of the frame head is wrong", nil
	case f.size() > r.win.size-r.end:
		return f, nil, "the frame goes beyond the end of the file", nil
	case f.durable > r.end:
		return f, nil, "the frame claims that a later part was synced before it", nil
	}
	b, err := r.win.bytes(r.end, frameHeadBytes+int64(f.length))
	if err != nil {
		return f, nil, "", fmt.Errorf("log segment %s: %w", r.path, err)
	}
	if !checkChain(b, f, r.chain) {
		return f, nil, "the checksum of the records is wrong", nil
	}
	r.end += f.size()
	r.chain = f.chain
	r.durable = max(r.durable, f.durable)
	return f, b[frameHeadBytes:], "", nil
}

// replaying passes the records of each frame to fn.
func (r *reader) replaying(replay func(Record) error) eachFrame {
	return func(at int64, _ frame, recs []byte) error { return r.visit(at, recs, replay) }
}

// visit decodes the records of a frame at offset at.
func (r *reader) visit(at int64, recs []byte, replay func(Record) error) error {
	for len(recs) > 0 {
		rec, rest, err := decodeRecord(recs)
		if err != nil {
			return &DamageError{r.path, at, err.Error() + " in a frame with the right checksum"}
		}
		if err := replay(rec); err != nil {
			return fmt.Errorf("replaying the frame at offset %d of log segment %s: %w", at, r.path, err)
		}
		r.note(&rec)
		recs = rest
	}
	return nil
}

// readWhole reads a segment that has a successor: it must end exactly at the
// offset that the successor names.
func (r *reader) readWhole(next *segmentHead, each eachFrame) error {
	for r.end < next.prevEnd {
		at := r.end
		f, recs, why, err := r.next()
		if err != nil {
			return err
		}
		if why != "" {
			return &DamageError{r.path, at, fmt.Sprintf("%s; the next segment says that records go on to offset %d", why, next.prevEnd)}
		}
		if err := each(at, f, recs); err != nil {
			return err
		}
	}
	if r.end != next.prevEnd || r.chain != next.prevChain {
		return &DamageError{r.path, r.end, fmt.Sprintf("segment %d does not continue it", next.number)}
	}
	return nil
}

// readTail reads the last segment up to where a crash has left it: valid
// frames, then torn bytes up to torn (r.end if there are none), then zeros.
func (r *reader) readTail(each eachFrame) (torn int64, why string, err error) {
	for {
		at := r.end
		f, recs, why, err := r.next()
		if err != nil {
			return 0, "", err
		}
		if why != "" {
			return r.judge(why)
		}
		if f.kind == frameSeal {
			missing := path.Join(path.Dir(r.path), segmentName(r.number+1))
			return 0, "", &DamageError{missing, 0, fmt.Sprintf("the file is missing; %s was sealed when it was there", path.Base(r.path))}
		}
		if err := each(at, f, recs); err != nil {
			return 0, "", err
		}
	}
}

// judge classifies bytes at r.end that aren't a frame, given the reason why
// not. They are a torn tail unless some frame behind them was written after a
// Sync had covered them.
func (r *reader) judge(why string) (torn int64, reason string, err error) {
	torn, err = r.win.lastNonZero(r.end)
	if err != nil || torn == r.end {
		return torn, "", err
	}
	for at := r.end + frameAlign; at < torn; at += frameAlign {
		b, err := r.win.bytes(at, frameHeadBytes)
		if err != nil {
			return 0, "", fmt.Errorf("log segment %s: %w", r.path, err)
		}
		if f, ok := decodeFrameHead(b, r.seed); ok && f.durable > r.end && f.durable <= at {
			return 0, "", &DamageError{r.path, r.end, fmt.Sprintf("%s; it is not a torn tail: when the frame at offset %d was written, everything up to offset %d had been synced", why, at, f.durable)}
		}
	}
	return torn, why, nil
}

// listSegments returns the numbers of the segments in dir in order, which have
// no gap, and the names of files left over from an unfinished creation.
func listSegments(fsys vfs.FS, dir string) (numbers []uint64, temps []string, err error) {
	names, err := fsys.List(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil, nil
		}
		return nil, nil, fmt.Errorf("listing the log's segments: %w", err)
	}
	for _, name := range names {
		if base, ok := strings.CutSuffix(name, tempSuffix); ok {
			if _, ok := parseSegmentName(base); ok {
				temps = append(temps, path.Join(dir, name))
			}
			continue
		}
		number, ok := parseSegmentName(name)
		if !ok {
			continue
		}
		if n := len(numbers); n > 0 && number != numbers[n-1]+1 {
			missing := path.Join(dir, segmentName(numbers[n-1]+1))
			return nil, nil, &DamageError{missing, 0, fmt.Sprintf("the file is missing; %s and %s are there", segmentName(numbers[n-1]), name)}
		}
		numbers = append(numbers, number)
	}
	return numbers, temps, nil
}
