package apply

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
)

// compact compacts all partitions at a revision. It takes no
// revision itself; the newest that it may name is the one before it.
func (x *execution) compact(req *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	rev := req.GetRevision()
	switch {
	case rev <= x.compacted():
		return nil, fault.Compacted
	case rev > x.before():
		return nil, fault.FutureRevision
	}
	for p := range x.parts.Each() {
		x.m.Stores[p].Compact(rev)
	}
	if o := x.m.Observer; o != nil {
		o.Compacted(rev)
	}
	return &pb.CompactionResponse{Header: x.header(false)}, nil
}

// Compacted is the revision below which history can't be read, -1 if there has
// been no compaction. It takes a read lock.
func (m *Machine) Compacted() int64 {
	s := m.Stores[0] // the same in all of them
	s.RLock()
	defer s.RUnlock()
	return s.Compacted()
}
