package etcdwal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// Types of records.
const (
	typeMetadata = 1
	typeEntry    = 2
	typeState    = 3
	typeCRC      = 4
	typeSnapshot = 5
)

// maxRecord is far more bytes than a restored directory's records have.
const maxRecord = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errDamaged = errors.New("etcd's log is damaged")

type record struct {
	kind uint64
	crc  uint32
	data []byte
}

// decoder reads the records of one segment.
type decoder struct {
	r   *bufio.Reader
	crc uint32
}

// next returns io.EOF behind the last record.
func (d *decoder) next() (record, error) {
	var frame [8]byte
	if _, err := io.ReadFull(d.r, frame[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: it ends inside a length", errDamaged)
		}
		return record{}, err
	}
	length := binary.LittleEndian.Uint64(frame[:])
	if length == 0 {
		return record{}, io.EOF
	}
	size, padding := length&(1<<56-1), uint64(0)
	if length>>63 == 1 {
		padding = length >> 56 & 7
	}
	if size > maxRecord {
		return record{}, fmt.Errorf("%w: it has a record of %d bytes", ErrUsed, size)
	}
	b := make([]byte, size+padding)
	if _, err := io.ReadFull(d.r, b); err != nil {
		return record{}, fmt.Errorf("%w: it ends inside a record", errDamaged)
	}
	rec, err := parseRecord(b[:size])
	if err != nil {
		return record{}, err
	}
	return rec, d.check(rec)
}

// check compares the checksum of a record. A record of the checksum begins a new sum.
func (d *decoder) check(rec record) error {
	if rec.kind == typeCRC {
		d.crc = rec.crc
		return nil
	}
	if d.crc = crc32.Update(d.crc, castagnoli, rec.data); d.crc != rec.crc {
		return fmt.Errorf("%w: a record's checksum is %08x, not %08x", errDamaged, d.crc, rec.crc)
	}
	return nil
}

func parseRecord(b []byte) (rec record, err error) {
	err = eachField(b, func(num protowire.Number, v uint64, data []byte) {
		switch num {
		case 1:
			rec.kind = v
		case 2:
			rec.crc = uint32(v)
		case 3:
			rec.data = data
		}
	})
	return rec, err
}

// eachField calls fn with the numbers and the byte strings of a message.
func eachField(b []byte, fn func(num protowire.Number, v uint64, data []byte)) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%w: %w", errDamaged, protowire.ParseError(n))
		}
		b = b[n:]
		var v uint64
		var data []byte
		switch typ {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			data, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return fmt.Errorf("%w: %w", errDamaged, protowire.ParseError(n))
		}
		fn(num, v, data)
		b = b[n:]
	}
	return nil
}
