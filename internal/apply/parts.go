package apply

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/placement"
)

// Parts is the set of partitions that a request reads or writes: never empty,
// and all of them for system commands. A transaction's are those of all its
// compares and of both branches, nested ones too: which branch is taken is only
// known when the participants are locked.
func (m *Machine) Parts(req proto.Message) placement.Set { return m.parts(req, false) }

// parts is Parts; wide stands for as long as a transit of keys lasts.
func (m *Machine) parts(req proto.Message, wide bool) placement.Set {
	var parts placement.Set
	switch r := req.(type) {
	case *pb.PutRequest:
		parts = m.writeParts(r.GetKey(), nil, wide)
	case *pb.RangeRequest:
		parts = across(m.Placement(), r.GetKey(), r.GetRangeEnd(), wide)
	case *pb.DeleteRangeRequest:
		parts = m.writeParts(r.GetKey(), r.GetRangeEnd(), wide)
	case *pb.TxnRequest:
		parts = m.txnParts(r, wide)
	case *pb.WatchCreateRequest:
		parts = placement.Of(0) // nothing but its place in the log
	default:
		parts = m.Placement().All()
	}
	if parts == 0 { // a transaction without any key
		parts = placement.Of(0)
	}
	return parts
}

// across is where the keys of a range are, or may be while a transit lasts.
func across(m *placement.Map, key, end []byte, wide bool) placement.Set {
	if wide {
		return m.Wide(key, end)
	}
	return m.Range(key, end)
}

// where is across for one key.
func where(m *placement.Map, key []byte, wide bool) placement.Set {
	if wide && m.Transit() != nil {
		return m.Wide(key, nil)
	}
	return placement.Of(m.Partition(key))
}

func (m *Machine) txnParts(req *pb.TxnRequest, wide bool) placement.Set {
	var parts placement.Set
	for _, c := range req.GetCompare() {
		parts |= across(m.Placement(), c.GetKey(), c.GetRangeEnd(), wide)
	}
	for _, ops := range [...][]*pb.RequestOp{req.GetSuccess(), req.GetFailure()} {
		for _, op := range ops {
			parts |= m.operationParts(op, wide)
		}
	}
	return parts
}

func (m *Machine) operationParts(op *pb.RequestOp, wide bool) placement.Set {
	switch r := op.GetRequest().(type) {
	case *pb.RequestOp_RequestRange:
		return across(m.Placement(), r.RequestRange.GetKey(), r.RequestRange.GetRangeEnd(), wide)
	case *pb.RequestOp_RequestPut:
		return m.writeParts(r.RequestPut.GetKey(), nil, wide)
	case *pb.RequestOp_RequestDeleteRange:
		return m.writeParts(r.RequestDeleteRange.GetKey(), r.RequestDeleteRange.GetRangeEnd(), wide)
	case *pb.RequestOp_RequestTxn:
		return m.txnParts(r.RequestTxn, wide)
	}
	return 0
}

// writeParts are the partitions of a range's keys and of all that a change of them can
// affect: event extensions, and the registry of extensions.
func (m *Machine) writeParts(key, end []byte, wide bool) placement.Set {
	parts := across(m.Placement(), key, end, wide) | m.managedParts(key, end)
	return parts | m.reactions(key, end)
}
