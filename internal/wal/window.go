package wal

import (
	"bytes"
	"fmt"
	"io"

	"github.com/stoa-kv/stoa/internal/vfs"
)

const windowBytes = 1 << 20

var zeros [windowBytes]byte

// window reads a file mostly forward, in large steps.
type window struct {
	file vfs.File
	size int64
	at   int64
	buf  []byte
}

// bytes returns n bytes from off, fewer only at the end of the file, valid
// until the next call.
func (w *window) bytes(off, n int64) ([]byte, error) {
	n = max(0, min(n, w.size-off))
	if off < w.at || off+n > w.at+int64(len(w.buf)) {
		if err := w.load(off, n); err != nil {
			return nil, err
		}
	}
	return w.buf[off-w.at:][:n:n], nil
}

func (w *window) load(off, n int64) error {
	n = min(max(n, windowBytes), w.size-off)
	if int64(cap(w.buf)) < n {
		w.buf = make([]byte, n)
	}
	w.at, w.buf = off, w.buf[:n]
	if got, err := w.file.ReadAt(w.buf, off); int64(got) < n {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		w.buf = w.buf[:0]
		return fmt.Errorf("reading %d bytes at offset %d: %w", n, off, err)
	}
	return nil
}

// lastNonZero returns the offset after the last non-zero byte from off on, or
// off if all are zero.
func (w *window) lastNonZero(off int64) (last int64, err error) {
	ranges, err := w.data(off)
	if err != nil {
		return 0, err
	}
	last = off
	for _, r := range ranges {
		for at := r.from; at < r.to; at += windowBytes {
			b, err := w.bytes(at, min(windowBytes, r.to-at))
			if err != nil {
				return 0, err
			}
			if !bytes.Equal(b, zeros[:len(b)]) {
				last = at + int64(len(bytes.TrimRight(b, "\x00")))
			}
		}
	}
	return last, nil
}

type byteRange struct{ from, to int64 }

// data returns the ranges from off on that may hold other bytes than zeros. A segment is mostly room that was
// never written to, which would take a tenth of a second to read. What the file system says of holes tells a torn
// tail from damage, and no more: frames are read, and checked, wherever they are.
func (w *window) data(off int64) (ranges []byteRange, err error) {
	for {
		from, to, err := w.file.NextData(off)
		if err != nil {
			return nil, fmt.Errorf("looking for data: %w", err)
		}
		if from >= to {
			return ranges, nil
		}
		ranges = append(ranges, byteRange{from, to})
		off = to
	}
}
