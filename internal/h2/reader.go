package h2

import "io"

const (
	smallBuffer  = 1 << 10  // of a connection that is idle most of the time
	largeBuffer  = 64 << 10 // of one that has filled all smaller ones
	bufferGrowth = 4        // of one that has been filled
)

// reader reads frames.
type reader struct {
	from     io.Reader
	buf      []byte
	off, end int
	filled   bool   // the last read has filled the buffer
	most     int    // bytes that were in it at once, since slim
	grown    func() // called when it has become large
}

// next returns the next frame.
func (r *reader) next() (frame, error) {
	if err := r.need(frameHeader); err != nil {
		return frame{}, err
	}
	n := r.size()
	if n > maxFrame {
		return frame{}, fatal(frameSize, "a frame is larger than SETTINGS_MAX_FRAME_SIZE")
	}
	if err := r.need(frameHeader + n); err != nil {
		return frame{}, err
	}
	h := r.buf[r.off:]
	f := frame{
		typ: frameType(h[3]), flags: h[4],
		stream:  (uint32(h[5])<<24 | uint32(h[6])<<16 | uint32(h[7])<<8 | uint32(h[8])) & maxStreamID,
		payload: h[frameHeader : frameHeader+n : frameHeader+n],
	}
	r.off += frameHeader + n
	return f, nil
}

func (r *reader) size() int {
	h := r.buf[r.off:]
	return int(h[0])<<16 | int(h[1])<<8 | int(h[2])
}

// ready tells whether a frame can be had without reading.
func (r *reader) ready() bool {
	have := r.end - r.off
	return have >= frameHeader && have >= frameHeader+r.size()
}

// need reads until n bytes are there.
func (r *reader) need(n int) error {
	for r.end-r.off < n {
		r.makeRoom(n)
		got, err := r.from.Read(r.buf[r.end:])
		r.end += got
		r.filled = r.end == len(r.buf)
		r.most = max(r.most, r.end-r.off)
		if err != nil && r.end-r.off < n {
			return err
		}
	}
	return nil
}

// makeRoom makes room for more of what is to become n bytes. The buffer grows with what has come, not with what is announced.
func (r *reader) makeRoom(n int) {
	if r.off == r.end {
		r.off, r.end = 0, 0
	}
	size := len(r.buf)
	switch {
	case size == 0:
		size = smallBuffer
	case r.filled, r.end-r.off == size:
		size = min(bufferGrowth*size, largeBuffer)
	}
	if size > len(r.buf) {
		buf := make([]byte, size)
		r.end = copy(buf, r.buf[r.off:r.end])
		r.buf, r.off = buf, 0
		if r.fat() && r.grown != nil {
			r.grown()
		}
	} else if len(r.buf)-r.off < n {
		r.end = copy(r.buf, r.buf[r.off:r.end])
		r.off = 0
	}
}
