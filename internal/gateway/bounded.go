package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
)

// jsonFactor is how much longer than on gRPC's wire a request may be in JSON.
// Base64 makes it longer by a third; the rest is for names and white space.
const jsonFactor = 2

// bounded is a marshaler whose decoders read at most limit bytes for one
// request. They have to hold it in memory as a whole to decode it, and anybody
// can send them one, before any check of rights.
type bounded struct {
	runtime.Marshaler
	limit int
}

// NewDecoder implements runtime.Marshaler. Each request of a stream has the
// limit for itself.
func (b bounded) NewDecoder(r io.Reader) runtime.Decoder {
	in := &reader{Reader: r, limit: b.limit}
	decoder := b.Marshaler.NewDecoder(in)
	return runtime.DecoderFunc(func(v any) error {
		in.left = in.limit
		err := decoder.Decode(v)
		if b, ok := r.(*body); ok && err != nil && !errors.Is(err, io.EOF) {
			_, _ = io.Copy(io.Discard, b) // see body: nobody else reads it to its end
		}
		return err
	})
}

// body is that of a stream's request, whose answer lasts until the client ends it or leaves.
// net/http notices that a client has left only once the body has been read to its end. A
// client whose body is malformed, and so has no end, has to be taken for one that has left: its
// connection would stay for ever.
type body struct {
	io.ReadCloser
	left func()
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case errors.Is(err, http.ErrBodyReadAfterClose):
		return n, io.EOF // net/http itself has read it to its end, before the first part of the answer
	case err != nil && !errors.Is(err, io.EOF):
		b.left()
	}
	return n, err
}

type reader struct {
	io.Reader
	limit, left int
}

func (r *reader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, fmt.Errorf("a request in JSON has at most %d bytes here (--max-request-bytes)", r.limit)
	}
	n, err := r.Reader.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}
