package transport

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
)

// codec is protobuf's, except that a large batch's Raft messages are copied
// once less on each side: allocating a megabyte for one costs more than the
// rest of its processing. The wire format is the same.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

const (
	largeBatch  = 16 << 10 // bytes from which it pays
	largeString = 2 << 10
	tagRaft     = 1<<3 | byte(protowire.BytesType) // of Batch.raft, which is a byte long
)

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*peerpb.Batch)
	if !ok || weight(b) < largeBatch {
		return c.CodecV2.Marshal(v)
	}
	var all mem.BufferSlice
	var own []byte // what is copied
	for _, s := range b.Raft {
		own = append(own, tagRaft)
		own = binary.AppendUvarint(own, uint64(len(s)))
		if len(s) < largeString {
			own = append(own, s...)
			continue
		}
		all = append(all, mem.SliceBuffer(own), mem.SliceBuffer(s)) // sent batches are never changed
		own = nil
	}
	rest := &peerpb.Batch{Confirm: b.Confirm, ConfirmAck: b.ConfirmAck, Closed: b.Closed, Calls: b.Calls, Replies: b.Replies, Ping: b.Ping, AnswersLost: b.AnswersLost, Settled: b.Settled}
	own, err := protobuf.MarshalOptions{}.MarshalAppend(own, rest)
	if err != nil {
		return nil, err
	}
	return append(all, mem.SliceBuffer(own)), nil
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*peerpb.Batch)
	if !ok || data.Len() < largeBatch {
		return c.CodecV2.Unmarshal(data, v)
	}
	b.Reset()
	r := bufio.NewReaderSize(data.Reader(), 512)
	left := data.Len()
	for {
		next, err := r.Peek(min(left, 1+binary.MaxVarintLen64))
		if err != nil {
			return err
		}
		if len(next) == 0 || next[0] != tagRaft {
			break
		}
		size, n := binary.Uvarint(next[1:])
		if left -= 1 + n; n <= 0 || size > uint64(left) {
			return fmt.Errorf("a Raft message's part of %d bytes, of which %d are there", size, left)
		}
		s := make([]byte, size)
		if _, err := r.Discard(1 + n); err != nil {
			return err
		}
		if _, err := io.ReadFull(r, s); err != nil {
			return err
		}
		b.Raft = append(b.Raft, s)
		left -= len(s)
	}
	rest, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return protobuf.UnmarshalOptions{Merge: true}.Unmarshal(rest, b)
}
