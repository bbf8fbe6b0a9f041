package sidecar

import (
	"bytes"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/internal/kvwire"
)

// kinds are the methods whose calls may go over a session.
var kinds = map[string]stoapb.Kind{
	pb.KV_Put_FullMethodName: stoapb.Kind_PUT, pb.KV_Range_FullMethodName: stoapb.Kind_RANGE,
	pb.KV_DeleteRange_FullMethodName: stoapb.Kind_DELETE_RANGE, pb.KV_Txn_FullMethodName: stoapb.Kind_TXN,
}

// methods are those of reads, by kind.
var methods = map[stoapb.Kind]string{stoapb.Kind_RANGE: pb.KV_Range_FullMethodName, stoapb.Kind_TXN: pb.KV_Txn_FullMethodName}

// maxShared bounds a request that goes over a session, in bytes: a larger one would hold up
// those behind it, and gain little.
const maxShared = 32 << 10

// ordinary reports whether a call's metadata asks for nothing that a session can't carry. A
// name that isn't known here may mean something to a member.
func ordinary(md metadata.MD) bool {
	for name := range md {
		if !meaningless(name) {
			return false
		}
	}
	return true
}

// meaningless tells metadata that asks for nothing.
func meaningless(name string) bool {
	return name == rpctypes.MetadataClientAPIVersionKey || ofConnection(name)
}

// shareable reports whether a stream may follow one that others follow, too: all that its metadata
// may ask for is a leader.
func shareable(md metadata.MD) (leader, ok bool) {
	for name, values := range md {
		switch {
		case name == rpctypes.MetadataRequireLeaderKey:
			leader = len(values) > 0 && values[0] == rpctypes.MetadataHasLeader
		case !meaningless(name):
			return false, false
		}
	}
	return leader, true
}

// shared is a request that may go over a session.
type shared struct {
	kind  stoapb.Kind
	body  []byte
	keys  [][]byte // single keys: all that it reads and writes
	write bool
}

// share classifies a request: false if it has to be a call of its own. That is so for all
// that may take long, for serializable reads, which say nothing of an order, and for messages
// that a member would refuse: its own words are the best.
func share(kind stoapb.Kind, body []byte) (r shared, ok bool) {
	if len(body) > maxShared {
		return r, false
	}
	r = shared{kind: kind, body: body, write: kind != stoapb.Kind_RANGE}
	switch kind {
	case stoapb.Kind_PUT:
		p, err := kvwire.ReadPut(body)
		ok = err == nil && r.add(p.Key, nil)
	case stoapb.Kind_RANGE:
		if key, plain := kvwire.ReadGet(body); plain {
			return r, r.add(key, nil)
		}
		m := new(pb.RangeRequest)
		ok = proto.Unmarshal(body, m) == nil && r.addRange(m)
	case stoapb.Kind_DELETE_RANGE:
		m := new(pb.DeleteRangeRequest)
		ok = proto.Unmarshal(body, m) == nil && r.add(m.Key, m.RangeEnd)
	case stoapb.Kind_TXN:
		m := new(pb.TxnRequest)
		ok = proto.Unmarshal(body, m) == nil && r.addTxn(m)
	}
	return r, ok && len(r.keys) > 0
}

// extensions is where programs are registered: that concerns all partitions.
var extensions = []byte("/em/")

func (r *shared) add(key, end []byte) bool {
	if len(key) == 0 || len(end) > 0 || bytes.HasPrefix(key, extensions) {
		return false
	}
	r.keys = append(r.keys, key)
	return true
}

func (r *shared) addRange(m *pb.RangeRequest) bool {
	return !m.Serializable && r.add(m.Key, m.RangeEnd)
}

// addTxn takes transactions over single keys, without transactions inside.
func (r *shared) addTxn(m *pb.TxnRequest) bool {
	for _, c := range m.Compare {
		if !r.add(c.GetKey(), c.GetRangeEnd()) {
			return false
		}
	}
	r.write = false
	for _, ops := range [][]*pb.RequestOp{m.Success, m.Failure} {
		for _, op := range ops {
			ok := false
			switch o := op.GetRequest().(type) {
			case *pb.RequestOp_RequestRange:
				ok = r.addRange(o.RequestRange)
			case *pb.RequestOp_RequestPut:
				r.write, ok = true, r.add(o.RequestPut.GetKey(), nil)
			case *pb.RequestOp_RequestDeleteRange:
				r.write, ok = true, r.add(o.RequestDeleteRange.GetKey(), o.RequestDeleteRange.GetRangeEnd())
			}
			if !ok {
				return false
			}
		}
	}
	return true
}
