package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path"
	"strconv"
	"strings"

	"github.com/stoa-kv/stoa/internal/vfs"
)

// A segment file begins with a head, padded with zeros to a multiple of 8:
//
//	 0  8 B  "stoawal" and the format version
//	 8  u64  number of the segment
//	16  u64  length of the file; it never changes
//	24  u64  offset at which the records of the segment before end, 0 if first
//	32  u32  chain value there
//	36  u32  length of the metadata
//	40  n B  metadata
//	    u32  checksum of all that: the segment's seed, where its chain begins
const (
	magic          = "stoawal\x01"
	segmentSuffix  = ".wal"
	tempSuffix     = ".tmp"
	lockName       = "LOCK"
	fixedHeadBytes = 40
	maxMetadata    = 1 << 16
)

type segmentHead struct {
	number    uint64
	size      int64
	prevEnd   int64
	prevChain uint32
	metadata  []byte
}

func segmentHeadBytes(metadata int) int64 {
	return align(fixedHeadBytes + int64(metadata) + 4)
}

func (h *segmentHead) encode() (b []byte, seed uint32) {
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint64(b, h.number)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.size))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.prevEnd))
	b = binary.LittleEndian.AppendUint32(b, h.prevChain)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(h.metadata)))
	b = append(b, h.metadata...)
	seed = crc32.Checksum(b, castagnoli)
	b = binary.LittleEndian.AppendUint32(b, seed)
	return append(b, make([]byte, segmentHeadBytes(len(h.metadata))-int64(len(b)))...), seed
}

// decodeSegmentHead reads a head from the beginning of b; metadata is copied.
func decodeSegmentHead(b []byte) (h segmentHead, seed uint32, err error) {
	if len(b) < fixedHeadBytes {
		return h, 0, errors.New("the file ends inside the segment head")
	}
	if string(b[:8]) != magic {
		return h, 0, fmt.Errorf("not a segment of this version: it begins with %q", b[:8])
	}
	n := int(binary.LittleEndian.Uint32(b[36:]))
	if n > maxMetadata || len(b) < fixedHeadBytes+n+4 {
		return h, 0, fmt.Errorf("the segment head claims %d bytes of metadata", n)
	}
	seed = crc32.Checksum(b[:fixedHeadBytes+n], castagnoli)
	if seed != binary.LittleEndian.Uint32(b[fixedHeadBytes+n:]) {
		return h, 0, errors.New("the checksum of the segment head is wrong")
	}
	h = segmentHead{
		number:    binary.LittleEndian.Uint64(b[8:]),
		size:      int64(binary.LittleEndian.Uint64(b[16:])),
		prevEnd:   int64(binary.LittleEndian.Uint64(b[24:])),
		prevChain: binary.LittleEndian.Uint32(b[32:]),
		metadata:  append([]byte(nil), b[fixedHeadBytes:fixedHeadBytes+n]...),
	}
	return h, seed, nil
}

// segment is one file of the log, with the indexes that Release needs.
type segment struct {
	segmentHead
	path string
	seed uint32
	end  int64 // of the frames; the next one goes here
	last map[uint32]uint64
	// zeroed is the offset up to which zeros were written ahead, ahead the
	// number to write the next time. Only the writer uses them; they are
	// hints.
	zeroed int64
	ahead  int
}

// note records the highest index of each group in the segment.
func (s *segment) note(r *Record) {
	if r.Index > s.last[r.Group] {
		s.last[r.Group] = r.Index
	}
}

func segmentName(number uint64) string {
	return fmt.Sprintf("%016x%s", number, segmentSuffix)
}

func parseSegmentName(name string) (number uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok || len(digits) != 16 {
		return 0, false
	}
	number, err := strconv.ParseUint(digits, 16, 64)
	return number, err == nil && number > 0 && segmentName(number) == name
}

// createSegment makes a segment with its first frame, if there is one, and
// returns when it is durable under its name. It is written under a temporary
// name and renamed, so that a segment that has its name has its whole head.
func createSegment(fs vfs.FS, dir string, h segmentHead, first func(seed uint32, at int64) []byte) (*segment, vfs.File, error) {
	b, seed := h.encode()
	b = append(b, first(seed, int64(len(b)))...)
	s := &segment{
		segmentHead: h,
		path:        path.Join(dir, segmentName(h.number)),
		seed:        seed,
		end:         int64(len(b)),
		last:        map[uint32]uint64{},
	}
	err := writeSegment(fs, s, b)
	if err == nil {
		err = fs.SyncDir(dir)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("creating log segment %s: %w", s.path, err)
	}
	f, err := fs.Open(s.path)
	if err != nil {
		return nil, nil, fmt.Errorf("opening new log segment: %w", err)
	}
	return s, f, nil
}

func writeSegment(fs vfs.FS, s *segment, b []byte) error {
	f, err := fs.Create(s.path + tempSuffix)
	if err != nil {
		return err
	}
	err = f.Preallocate(s.size)
	if err == nil {
		_, err = f.WriteAt(b, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return fs.Rename(s.path+tempSuffix, s.path)
}
