package sidecar

import (
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// frame is a message that nothing decodes.
type frame struct{ data []byte }

func (f *frame) size() int { return len(f.data) }

// codec leaves frames alone. All other messages are protobuf's.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Marshal implements encoding.CodecV2. A frame may be sent several times: the memory is
// its own, not a pool's.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		return mem.BufferSlice{mem.SliceBuffer(f.data)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	f.data = data.Materialize()
	return nil
}

// callOptions are those of every call that is forwarded. What a member answers is passed on
// whatever its size.
func callOptions() []grpc.CallOption {
	return []grpc.CallOption{
		grpc.ForceCodecV2(newCodec()),
		grpc.MaxCallRecvMsgSize(math.MaxInt32),
		grpc.MaxCallSendMsgSize(math.MaxInt32),
	}
}
