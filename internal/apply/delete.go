package apply

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
)

func (x *execution) deleteRangeCommand(req *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	if x.undecided(extension.Delete, req.GetKey(), req.GetRangeEnd()) {
		return nil, fault.Moved
	}
	if role, name, _ := extension.Parse(req.GetKey()); role == extension.Ack && len(req.GetRangeEnd()) == 0 {
		req.Key = extension.AckKey(name, x.client)
	}
	return x.deleteRange(req), nil
}

// deleteRange deletes the keys of a range, in key order over all partitions, so
// that sub-revisions are as in etcd.
func (x *execution) deleteRange(req *pb.DeleteRangeRequest) *pb.DeleteRangeResponse {
	kvs := x.now(req.GetKey(), req.GetRangeEnd())
	for _, kv := range kvs {
		x.delete(kv.Key)
	}
	if !x.answers {
		return nil
	}
	resp := &pb.DeleteRangeResponse{Header: x.header(true), Deleted: int64(len(kvs))}
	if req.GetPrevKv() {
		resp.PrevKvs = kvs
	}
	return resp
}

// now returns the keys of a range as they are at this moment. The newest values
// are always in memory, so neither step can fail.
func (x *execution) now(key, end []byte) []*mvccpb.KeyValue {
	sel, _ := x.find(key, end, 0, 0)
	kvs, _ := sel.kvs()
	return kvs
}
