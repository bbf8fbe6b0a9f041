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
func (w *window) lastNonZero(off int64) (int64, error) {
	last := off
	for off < w.size {
		b, err := w.bytes(off, windowBytes)
		if err != nil {
			return 0, err
		}
		if !bytes.Equal(b, zeros[:len(b)]) {
			last = off + int64(len(bytes.TrimRight(b, "\x00")))
		}
		off += int64(len(b))
	}
	return last, nil
}
