package etcdwal

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/stoa-kv/stoa/internal/protofield"
)

// Types of records.
const (
	typeMetadata = 1
	typeEntry    = 2
	typeState    = 3
	typeCRC      = 4
	typeSnapshot = 5
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type record struct {
	kind uint64
	crc  uint32
	data []byte
}

// decoder reads the records of segments, one after the other.
type decoder struct {
	r     *bufio.Reader
	left  int64 // bytes of the segment
	crc   uint32
	begun bool // crc is that of the records before
}

func (d *decoder) open(r io.Reader, size int64) { d.r, d.left = bufio.NewReader(r), size }

// next returns io.EOF behind the last record.
func (d *decoder) next() (record, error) {
	var frame [8]byte
	if _, err := io.ReadFull(d.r, frame[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: it ends inside a length", ErrDamaged)
		}
		return record{}, err
	}
	length := binary.LittleEndian.Uint64(frame[:])
	if length == 0 {
		return record{}, d.rest()
	}
	size, padding := length&(1<<56-1), uint64(0)
	if length>>63 == 1 {
		padding = length >> 56 & 7
	}
	d.left -= int64(len(frame))
	if size+padding > uint64(max(d.left, 0)) {
		return record{}, fmt.Errorf("%w: it ends inside a record", ErrDamaged)
	}
	d.left -= int64(size + padding)
	b := make([]byte, size+padding)
	if _, err := io.ReadFull(d.r, b); err != nil {
		return record{}, fmt.Errorf("%w: it ends inside a record", ErrDamaged)
	}
	rec, err := parseRecord(b[:size])
	if err != nil {
		return record{}, err
	}
	return rec, d.check(rec)
}

// rest is io.EOF if all that follows is the empty end of a segment.
func (d *decoder) rest() error {
	b := make([]byte, 64<<10)
	for {
		n, err := d.r.Read(b)
		if len(bytes.Trim(b[:n], "\x00")) > 0 {
			return fmt.Errorf("%w: a record's length is 0", ErrDamaged)
		}
		if err != nil {
			return err
		}
	}
}

// check compares the checksum of a record. Each segment begins with that of those before.
func (d *decoder) check(rec record) error {
	if rec.kind == typeCRC {
		if d.begun && d.crc != rec.crc {
			return fmt.Errorf("%w: a segment isn't the continuation of the one before", ErrDamaged)
		}
		d.crc, d.begun = rec.crc, true
		return nil
	}
	if d.crc = crc32.Update(d.crc, castagnoli, rec.data); d.crc != rec.crc {
		return fmt.Errorf("%w: a record's checksum is %08x, not %08x", ErrDamaged, d.crc, rec.crc)
	}
	return nil
}

func parseRecord(b []byte) (rec record, err error) {
	for f, err := range protofield.All(b) {
		if err != nil {
			return rec, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		switch f.Number {
		case 1:
			rec.kind = f.Varint
		case 2:
			rec.crc = uint32(f.Varint)
		case 3:
			rec.data = f.Bytes
		}
	}
	return rec, nil
}
