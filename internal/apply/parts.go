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
func (m *Machine) Parts(req proto.Message) placement.Set {
	var parts placement.Set
	switch r := req.(type) {
	case *pb.PutRequest:
		parts = m.writeParts(r.GetKey(), nil)
	case *pb.RangeRequest:
		parts = m.Placement().Range(r.GetKey(), r.GetRangeEnd())
	case *pb.DeleteRangeRequest:
		parts = m.writeParts(r.GetKey(), r.GetRangeEnd())
	case *pb.TxnRequest:
		parts = m.txnParts(r)
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

func (m *Machine) txnParts(req *pb.TxnRequest) placement.Set {
	var parts placement.Set
	for _, c := range req.GetCompare() {
		parts |= m.Placement().Range(c.GetKey(), c.GetRangeEnd())
	}
	for _, ops := range [...][]*pb.RequestOp{req.GetSuccess(), req.GetFailure()} {
		for _, op := range ops {
			parts |= m.operationParts(op)
		}
	}
	return parts
}

func (m *Machine) operationParts(op *pb.RequestOp) placement.Set {
	switch r := op.GetRequest().(type) {
	case *pb.RequestOp_RequestRange:
		return m.Placement().Range(r.RequestRange.GetKey(), r.RequestRange.GetRangeEnd())
	case *pb.RequestOp_RequestPut:
		return m.writeParts(r.RequestPut.GetKey(), nil)
	case *pb.RequestOp_RequestDeleteRange:
		return m.writeParts(r.RequestDeleteRange.GetKey(), r.RequestDeleteRange.GetRangeEnd())
	case *pb.RequestOp_RequestTxn:
		return m.txnParts(r.RequestTxn)
	}
	return 0
}

// writeParts is where the keys of a range are, and whatever their change leads to:
// event extensions, and the registry of extensions.
func (m *Machine) writeParts(key, end []byte) placement.Set {
	parts := m.Placement().Range(key, end) | m.managedParts(key, end)
	if reg := m.Extensions(); reg.HasEvents() {
		for _, e := range reg.EventsIn(key, end) {
			parts |= m.reach(e)
		}
	}
	return parts
}
