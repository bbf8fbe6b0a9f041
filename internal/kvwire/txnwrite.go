package kvwire

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
)

// Txn is a transaction that can be encoded by hand.
type Txn struct{ *pb.TxnRequest }

// BriefTxn returns a transaction as one that AppendTo encodes, or false: those that ReadTxn reads.
// Like PutOf it passes over fields of newer clients.
func BriefTxn(m *pb.TxnRequest) (Txn, bool) {
	for _, c := range m.GetCompare() {
		if c == nil || len(c.RangeEnd) > 0 {
			return Txn{}, false
		}
		switch c.TargetUnion.(type) {
		case *pb.Compare_Version, *pb.Compare_CreateRevision, *pb.Compare_ModRevision, *pb.Compare_Lease:
		default:
			return Txn{}, false
		}
	}
	for _, ops := range [2][]*pb.RequestOp{m.GetSuccess(), m.GetFailure()} {
		for _, op := range ops {
			if op.GetRequestPut() == nil && op.GetRequestRange() == nil && op.GetRequestDeleteRange() == nil {
				return Txn{}, false
			}
		}
	}
	return Txn{m}, true
}

// PutBytes is how many bytes of keys and values the puts of a transaction have, in those of its branches
// that have the most; 0: there are none.
func PutBytes(m *pb.TxnRequest) (most int) {
	for _, ops := range [2][]*pb.RequestOp{m.GetSuccess(), m.GetFailure()} {
		bytes := 0
		for _, op := range ops {
			switch r := op.GetRequest().(type) {
			case *pb.RequestOp_RequestPut:
				bytes += len(r.RequestPut.GetKey()) + len(r.RequestPut.GetValue())
			case *pb.RequestOp_RequestTxn:
				bytes += PutBytes(r.RequestTxn)
			}
		}
		most = max(most, bytes)
	}
	return most
}

// Size is how many bytes AppendTo appends.
func (t Txn) Size() int {
	size := 0
	for _, c := range t.Compare {
		size += 1 + protowire.SizeBytes(sizeCompare(c))
	}
	for _, ops := range [2][]*pb.RequestOp{t.Success, t.Failure} {
		for _, op := range ops {
			size += 1 + protowire.SizeBytes(1+protowire.SizeBytes(sizeRequest(op)))
		}
	}
	return size
}

// AppendTo appends the transaction as its message is marshalled.
func (t Txn) AppendTo(b []byte) []byte {
	for _, c := range t.Compare {
		b = protowire.AppendVarint(append(b, tagCompare), uint64(sizeCompare(c)))
		b = appendCompare(b, c)
	}
	for i, ops := range [2][]*pb.RequestOp{t.Success, t.Failure} {
		for _, op := range ops {
			n := sizeRequest(op)
			b = protowire.AppendVarint(append(b, [2]byte{tagSuccess, tagFailure}[i]), uint64(1+protowire.SizeBytes(n)))
			b = appendRequest(b, op, n)
		}
	}
	return b
}

func sizeCompare(c *pb.Compare) int {
	_, v := target(c)
	return sizeNumber(int64(c.Result)) + sizeNumber(int64(c.Target)) + sizeBytes(c.Key) + 1 + protowire.SizeVarint(uint64(v))
}

func appendCompare(b []byte, c *pb.Compare) []byte {
	b = appendNumber(b, 1<<3, int64(c.Result))
	b = appendNumber(b, 2<<3, int64(c.Target))
	b = appendBytes(b, 3<<3|bytesType, c.Key)
	tag, v := target(c)
	return protowire.AppendVarint(append(b, tag), uint64(v)) // as one of a union also if it is zero
}

// target is what a comparison compares with.
func target(c *pb.Compare) (tag byte, v int64) {
	switch of := c.TargetUnion.(type) {
	case *pb.Compare_Version:
		return 4 << 3, of.Version
	case *pb.Compare_CreateRevision:
		return 5 << 3, of.CreateRevision
	case *pb.Compare_ModRevision:
		return 6 << 3, of.ModRevision
	case *pb.Compare_Lease:
		return 8 << 3, of.Lease
	}
	return 0, 0
}

func sizeRequest(op *pb.RequestOp) int {
	switch r := op.Request.(type) {
	case *pb.RequestOp_RequestPut:
		p := PutOf(r.RequestPut)
		return p.Size()
	case *pb.RequestOp_RequestRange:
		return sizeRange(r.RequestRange)
	case *pb.RequestOp_RequestDeleteRange:
		n := sizeBytes(r.RequestDeleteRange.Key) + sizeBytes(r.RequestDeleteRange.RangeEnd)
		if r.RequestDeleteRange.PrevKv {
			n += 2
		}
		return n
	}
	return 0
}

// appendRequest appends an operation whose request has n bytes.
func appendRequest(b []byte, op *pb.RequestOp, n int) []byte {
	switch r := op.Request.(type) {
	case *pb.RequestOp_RequestPut:
		p := PutOf(r.RequestPut)
		return p.AppendTo(protowire.AppendVarint(append(b, tagPut), uint64(n)))
	case *pb.RequestOp_RequestRange:
		return appendRange(protowire.AppendVarint(append(b, tagRange), uint64(n)), r.RequestRange)
	case *pb.RequestOp_RequestDeleteRange:
		b = protowire.AppendVarint(append(b, tagDelete), uint64(n))
		b = appendBytes(b, 1<<3|bytesType, r.RequestDeleteRange.Key)
		b = appendBytes(b, 2<<3|bytesType, r.RequestDeleteRange.RangeEnd)
		if r.RequestDeleteRange.PrevKv {
			b = append(b, 3<<3, 1)
		}
	}
	return b
}

// numbersOf are the fields 3 to 13 of a range.
func numbersOf(m *pb.RangeRequest) [11]int64 {
	flag := func(set bool) int64 {
		if set {
			return 1
		}
		return 0
	}
	return [...]int64{m.Limit, m.Revision, int64(m.SortOrder), int64(m.SortTarget), flag(m.Serializable), flag(m.KeysOnly), flag(m.CountOnly),
		m.MinModRevision, m.MaxModRevision, m.MinCreateRevision, m.MaxCreateRevision}
}

func sizeRange(m *pb.RangeRequest) int {
	n := sizeBytes(m.Key) + sizeBytes(m.RangeEnd)
	for _, v := range numbersOf(m) {
		n += sizeNumber(v)
	}
	return n
}

func appendRange(b []byte, m *pb.RangeRequest) []byte {
	b = appendBytes(b, 1<<3|bytesType, m.Key)
	b = appendBytes(b, 2<<3|bytesType, m.RangeEnd)
	for i, v := range numbersOf(m) {
		b = appendNumber(b, byte(3+i)<<3, v)
	}
	return b
}
