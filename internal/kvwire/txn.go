package kvwire

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
)

// The tags of a transaction's fields, and of what is within them, are bytes too, except that of
// a comparison's range.

const (
	tagCompare = 1<<3 | bytesType
	tagSuccess = 2<<3 | bytesType
	tagFailure = 3<<3 | bytesType

	tagRange  = 1<<3 | bytesType // of an operation, and of its response
	tagPut    = 2<<3 | bytesType
	tagDelete = 3<<3 | bytesType
)

// ReadTxn reads a transaction into m, which is new, if it has nothing but comparisons of single
// keys, puts, deletions and ranges. Its keys and values alias b. It returns false for
// anything else: protobuf has to decode that, or to report the error.
func ReadTxn(b []byte, m *pb.TxnRequest) bool {
	ok := eachField(b, func(f field) bool {
		switch f.tag {
		case tagCompare:
			return readCompare(f.bytes, m)
		case tagSuccess:
			return readOperation(f.bytes, &m.Success)
		case tagFailure:
			return readOperation(f.bytes, &m.Failure)
		}
		return false
	})
	if !ok {
		m.Reset()
	}
	return ok
}

// readCompare appends a comparison. Those of a revision, nearly all, take one piece of memory, with
// the list if they are the first.
func readCompare(b []byte, m *pb.TxnRequest) bool {
	one := new(struct {
		compare pb.Compare
		mod     pb.Compare_ModRevision
		list    [1]*pb.Compare
	})
	c := &one.compare
	one.list[0] = c
	if m.Compare == nil {
		m.Compare = one.list[:]
	} else {
		m.Compare = append(m.Compare, c)
	}
	ok := eachField(b, func(f field) bool {
		if f.tag >= 4<<3 && c.TargetUnion != nil {
			return false // a second one
		}
		switch f.tag {
		case 1 << 3:
			c.Result = pb.Compare_CompareResult(f.number)
		case 2 << 3:
			c.Target = pb.Compare_CompareTarget(f.number)
		case 3<<3 | bytesType:
			c.Key = f.bytes
		case 4 << 3:
			c.TargetUnion = &pb.Compare_Version{Version: int64(f.number)}
		case 5 << 3:
			c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: int64(f.number)}
		case 6 << 3:
			one.mod.ModRevision = int64(f.number)
			c.TargetUnion = &one.mod
		case 8 << 3:
			c.TargetUnion = &pb.Compare_Lease{Lease: int64(f.number)}
		default:
			return false
		}
		return true
	})
	return ok && c.TargetUnion != nil
}

// readOperation appends an operation. It takes one piece of memory, with the list if it is
// the first.
func readOperation(b []byte, ops *[]*pb.RequestOp) bool {
	if len(b) == 0 {
		return false
	}
	f, rest, ok := nextField(b)
	if !ok || len(rest) > 0 {
		return false
	}
	var op *pb.RequestOp
	var first []*pb.RequestOp
	switch f.tag {
	case tagPut:
		one := new(struct {
			op   pb.RequestOp
			of   pb.RequestOp_RequestPut
			put  pb.PutRequest
			list [1]*pb.RequestOp
		})
		op, first, one.of.RequestPut, one.op.Request = &one.op, one.list[:], &one.put, &one.of
		ok = readPutOf(f.bytes, &one.put)
	case tagRange:
		one := new(struct {
			op   pb.RequestOp
			of   pb.RequestOp_RequestRange
			get  pb.RangeRequest
			list [1]*pb.RequestOp
		})
		op, first, one.of.RequestRange, one.op.Request = &one.op, one.list[:], &one.get, &one.of
		ok = ReadRange(f.bytes, &one.get)
	case tagDelete:
		one := new(struct {
			op     pb.RequestOp
			of     pb.RequestOp_RequestDeleteRange
			remove pb.DeleteRangeRequest
			list   [1]*pb.RequestOp
		})
		op, first, one.of.RequestDeleteRange, one.op.Request = &one.op, one.list[:], &one.remove, &one.of
		ok = readDelete(f.bytes, &one.remove)
	default:
		return false
	}
	if first[0] = op; *ops == nil {
		*ops = first
	} else {
		*ops = append(*ops, op)
	}
	return ok
}

// readPutOf is ReadPut for puts without fields of newer clients, which a transaction keeps.
func readPutOf(b []byte, m *pb.PutRequest) bool {
	return eachField(b, func(f field) bool {
		switch f.tag {
		case 1<<3 | bytesType:
			m.Key = f.bytes
		case 2<<3 | bytesType:
			m.Value = f.bytes
		case 3 << 3:
			m.Lease = int64(f.number)
		case 4 << 3:
			m.PrevKv = f.number != 0
		case 5 << 3:
			m.IgnoreValue = f.number != 0
		case 6 << 3:
			m.IgnoreLease = f.number != 0
		default:
			return false
		}
		return true
	})
}

func readDelete(b []byte, m *pb.DeleteRangeRequest) bool {
	return eachField(b, func(f field) bool {
		switch f.tag {
		case 1<<3 | bytesType:
			m.Key = f.bytes
		case 2<<3 | bytesType:
			m.RangeEnd = f.bytes
		case 3 << 3:
			m.PrevKv = f.number != 0
		default:
			return false
		}
		return true
	})
}

// TxnAnswer is the answer to a transaction of puts and deletions without earlier values, which can
// be encoded and decoded by hand.
type TxnAnswer struct{ *pb.TxnResponse }

// BriefAnswer returns the answer as one that AppendTo encodes, or false.
func BriefAnswer(m *pb.TxnResponse) (TxnAnswer, bool) {
	for _, op := range m.GetResponses() {
		switch r := op.GetResponse().(type) {
		case *pb.ResponseOp_ResponsePut:
			if r.ResponsePut == nil || r.ResponsePut.PrevKv != nil {
				return TxnAnswer{}, false
			}
		case *pb.ResponseOp_ResponseDeleteRange:
			if r.ResponseDeleteRange == nil || len(r.ResponseDeleteRange.PrevKvs) > 0 {
				return TxnAnswer{}, false
			}
		default:
			return TxnAnswer{}, false
		}
	}
	return TxnAnswer{m}, true
}

// Size is how many bytes AppendTo appends.
func (a TxnAnswer) Size() int {
	size := SizeHeader(a.Header)
	if a.Succeeded {
		size += 2
	}
	for _, op := range a.Responses {
		size += 1 + protowire.SizeBytes(1+protowire.SizeBytes(sizeResponse(op)))
	}
	return size
}

// AppendTo appends the answer as its message is marshalled.
func (a TxnAnswer) AppendTo(b []byte) []byte {
	b = AppendHeader(b, a.Header)
	if a.Succeeded {
		b = append(b, 2<<3, 1)
	}
	for _, op := range a.Responses {
		n := sizeResponse(op)
		b = protowire.AppendVarint(append(b, 3<<3|bytesType), uint64(1+protowire.SizeBytes(n)))
		if r := op.GetResponseDeleteRange(); r != nil {
			b = protowire.AppendVarint(append(b, tagDelete), uint64(n))
			b = appendNumber(AppendHeader(b, r.Header), 2<<3, r.Deleted)
			continue
		}
		b = protowire.AppendVarint(append(b, tagPut), uint64(n))
		b = AppendHeader(b, op.GetResponsePut().GetHeader())
	}
	return b
}

func sizeResponse(op *pb.ResponseOp) int {
	if r := op.GetResponseDeleteRange(); r != nil {
		return SizeHeader(r.Header) + sizeNumber(r.Deleted)
	}
	return SizeHeader(op.GetResponsePut().GetHeader())
}

// ReadTxnAnswer reads such an answer; nil stands for any other.
func ReadTxnAnswer(b []byte) *pb.TxnResponse {
	m := &pb.TxnResponse{}
	ok := eachField(b, func(f field) bool {
		switch f.tag {
		case tagHeader:
			return readHeader(f.bytes, &m.Header)
		case 2 << 3:
			m.Succeeded = f.number != 0
		case 3<<3 | bytesType:
			return readResponse(f.bytes, m)
		default:
			return false
		}
		return true
	})
	if !ok {
		return nil
	}
	return m
}

func readResponse(b []byte, m *pb.TxnResponse) bool {
	if len(b) == 0 {
		return false
	}
	f, rest, ok := nextField(b)
	if !ok || len(rest) > 0 {
		return false
	}
	switch f.tag {
	case tagPut:
		one := new(struct {
			op   pb.ResponseOp
			of   pb.ResponseOp_ResponsePut
			put  pb.PutResponse
			list [1]*pb.ResponseOp
		})
		one.of.ResponsePut, one.op.Response, one.list[0] = &one.put, &one.of, &one.op
		if m.Responses == nil {
			m.Responses = one.list[:]
		} else {
			m.Responses = append(m.Responses, &one.op)
		}
		return eachField(f.bytes, func(f field) bool { return f.tag == tagHeader && readHeader(f.bytes, &one.put.Header) })
	case tagDelete:
		r := &pb.DeleteRangeResponse{}
		m.Responses = append(m.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: r}})
		return eachField(f.bytes, func(f field) bool {
			if f.tag == 2<<3 {
				r.Deleted = int64(f.number)
				return true
			}
			return f.tag == tagHeader && readHeader(f.bytes, &r.Header)
		})
	}
	return false
}

// readHeader reads the only header of an answer.
func readHeader(b []byte, to **pb.ResponseHeader) bool {
	if *to != nil {
		return false
	}
	*to = &pb.ResponseHeader{}
	return readHeaderInto(b, *to)
}

func readHeaderInto(b []byte, h *pb.ResponseHeader) bool {
	return eachField(b, func(f field) bool {
		switch f.tag {
		case 1 << 3:
			h.ClusterId = f.number
		case 2 << 3:
			h.MemberId = f.number
		case 3 << 3:
			h.Revision = int64(f.number)
		case 4 << 3:
			h.RaftTerm = f.number
		default:
			return false
		}
		return true
	})
}
