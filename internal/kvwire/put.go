package kvwire

import (
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
)

// Put is a PutRequest without a message's overhead: most requests of a busy
// server are puts.
type Put struct {
	Key, Value                       []byte
	Lease                            int64
	PrevKv, IgnoreValue, IgnoreLease bool
}

// The field numbers of PutRequest.
const (
	putKey protowire.Number = iota + 1
	putValue
	putLease
	putPrevKv
	putIgnoreValue
	putIgnoreLease
)

var errFieldNumber = errors.New("field number out of range")

// ReadPut reads a marshalled PutRequest exactly as proto.Unmarshal does (a
// fuzz test compares them), but without a message and without copying: the
// slices alias b. The services decode requests with it, and all replicas the
// commands that they apply.
func ReadPut(b []byte) (p Put, err error) {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return p, protowire.ParseError(n)
		}
		if number > protowire.MaxValidNumber {
			return p, errFieldNumber
		}
		b = b[n:]
		switch {
		case kind == protowire.BytesType && number <= putValue:
			var v []byte
			if v, n = protowire.ConsumeBytes(b); n >= 0 {
				p.setBytes(number, v)
			}
		case kind == protowire.VarintType && number >= putLease && number <= putIgnoreLease:
			var v uint64
			if v, n = protowire.ConsumeVarint(b); n >= 0 {
				p.setNumber(number, v)
			}
		default: // field of a newer client
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return p, protowire.ParseError(n)
		}
		b = b[n:]
	}
	return p, nil
}

func (p *Put) setBytes(number protowire.Number, v []byte) {
	if number == putKey {
		p.Key = v
	} else {
		p.Value = v
	}
}

func (p *Put) setNumber(number protowire.Number, v uint64) {
	switch number {
	case putLease:
		p.Lease = int64(v)
	case putPrevKv:
		p.PrevKv = v != 0
	case putIgnoreValue:
		p.IgnoreValue = v != 0
	case putIgnoreLease:
		p.IgnoreLease = v != 0
	}
}

// Plain reports whether the put has no options and no lease.
func (p *Put) Plain() bool { return !p.PrevKv && !p.IgnoreValue && !p.IgnoreLease }

// PutOf returns the put that a message asks for. They share key and value.
func PutOf(m *pb.PutRequest) Put {
	return Put{
		Key: m.GetKey(), Value: m.GetValue(), Lease: m.GetLease(),
		PrevKv: m.GetPrevKv(), IgnoreValue: m.GetIgnoreValue(), IgnoreLease: m.GetIgnoreLease(),
	}
}

// Message is the put as etcd's message, which shares its key and value.
func (p *Put) Message() *pb.PutRequest {
	m := &pb.PutRequest{}
	p.Into(m)
	return m
}

// Into sets the fields of a new message.
func (p *Put) Into(m *pb.PutRequest) {
	m.Key, m.Value, m.Lease = p.Key, p.Value, p.Lease
	m.PrevKv, m.IgnoreValue, m.IgnoreLease = p.PrevKv, p.IgnoreValue, p.IgnoreLease
}

// Size is how many bytes AppendTo appends.
func (p *Put) Size() int {
	n := sizeBytes(p.Key) + sizeBytes(p.Value) + sizeNumber(p.Lease)
	for _, set := range [...]bool{p.PrevKv, p.IgnoreValue, p.IgnoreLease} {
		if set {
			n += 2
		}
	}
	return n
}

// AppendTo appends the put as its message is marshalled.
func (p *Put) AppendTo(b []byte) []byte {
	b = appendBytes(b, byte(putKey)<<3|bytesType, p.Key)
	b = appendBytes(b, byte(putValue)<<3|bytesType, p.Value)
	b = appendNumber(b, byte(putLease)<<3, p.Lease)
	for i, set := range [...]bool{p.PrevKv, p.IgnoreValue, p.IgnoreLease} {
		if set {
			b = append(b, (byte(putPrevKv)+byte(i))<<3, 1)
		}
	}
	return b
}

// ReadPutAnswer reads a PutResponse with nothing but a header; nil stands for any other.
func ReadPutAnswer(b []byte) *pb.PutResponse {
	if len(b) == 0 {
		return nil
	}
	f, rest, ok := nextField(b)
	if !ok || f.tag != tagHeader || len(rest) > 0 {
		return nil
	}
	one := new(struct { // one piece of memory
		response pb.PutResponse
		header   pb.ResponseHeader
	})
	one.response.Header = &one.header
	if !readHeaderInto(f.bytes, &one.header) {
		return nil
	}
	return &one.response
}
