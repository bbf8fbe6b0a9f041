package h2

import (
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

func (st *stream) compress(plain mem.BufferSlice) (mem.BufferSlice, error) {
	var out mem.BufferSlice
	z, err := st.req.compressor.Compress(mem.NewWriter(&out, st.c.s.o.BufferPool))
	if err == nil {
		_, err = io.Copy(z, plain.Reader())
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		out.Free()
		return nil, status.Errorf(codes.Internal, "grpc: error while compressing: %v", err)
	}
	return out, nil
}

// decompress reads at most one byte more than a message may have.
func (st *stream) decompress(data mem.BufferSlice) (mem.BufferSlice, error) {
	o := &st.c.s.o
	if st.req.compressor == nil {
		return nil, status.Error(codes.Internal, "grpc: compressed flag set with identity or empty encoding")
	}
	from := data.Reader()
	defer from.Close()
	z, err := st.req.compressor.Decompress(from)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "grpc: failed to decompress the message: %v", err)
	}
	if closer, ok := z.(io.Closer); ok {
		defer closer.Close()
	}
	out, err := mem.ReadAll(io.LimitReader(z, int64(o.MaxRecvMessage)+1), o.BufferPool)
	switch {
	case err != nil:
		out.Free()
		return nil, status.Errorf(codes.Internal, "grpc: failed to decompress the message: %v", err)
	case out.Len() > o.MaxRecvMessage:
		out.Free()
		return nil, status.Errorf(codes.ResourceExhausted, "grpc: message after decompression larger than max %d", o.MaxRecvMessage)
	}
	return out, nil
}
