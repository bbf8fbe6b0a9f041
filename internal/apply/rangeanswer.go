package apply

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/kvwire"
)

// fetchLimit is how many keys have to be looked at: one more than was asked
// for, to know whether there are more; all of them, if they are yet to be
// filtered or put in another order. As in etcd, a target without an order is no
// other order here, though [order] then sorts by it: such a limit takes the
// first keys and sorts those.
func fetchLimit(req *pb.RangeRequest) int {
	if req.Limit <= 0 || req.Limit >= math.MaxInt || !inKeyOrder(req) || filtered(req) {
		return 0
	}
	return int(req.Limit) + 1
}

func inKeyOrder(req *pb.RangeRequest) bool {
	return req.SortOrder == pb.RangeRequest_NONE ||
		req.SortTarget == pb.RangeRequest_KEY && req.SortOrder == pb.RangeRequest_ASCEND
}

func filtered(req *pb.RangeRequest) bool {
	return req.MinModRevision != 0 || req.MaxModRevision != 0 ||
		req.MinCreateRevision != 0 || req.MaxCreateRevision != 0
}

// rangeAnswer keeps a response and its header in one allocation.
type rangeAnswer struct {
	response kvwire.RangeResponse
	header   pb.ResponseHeader
}

// assemble builds the response from a range's result.
func assemble(req *pb.RangeRequest, f found, rev int64) *kvwire.RangeResponse {
	kvs := f.kvs
	if filtered(req) {
		kvs = slices.DeleteFunc(kvs, func(kv kvwire.KeyValue) bool { return !passes(kv, req) })
	}
	order(kvs, req)
	more := req.Limit > 0 && int64(len(kvs)) > req.Limit
	if more {
		kvs = kvs[:req.Limit]
	}
	if req.KeysOnly {
		withoutValues(kvs, req)
	}
	a := &rangeAnswer{}
	a.header.Revision = rev
	a.response = kvwire.RangeResponse{Header: &a.header, Kvs: kvs, More: more, Count: int64(f.count)}
	return &a.response
}

func passes(kv kvwire.KeyValue, req *pb.RangeRequest) bool {
	mod, created := kv.ModRevision(), kv.CreateRevision()
	return (req.MaxModRevision == 0 || mod <= req.MaxModRevision) &&
		(req.MinModRevision == 0 || mod >= req.MinModRevision) &&
		(req.MaxCreateRevision == 0 || created <= req.MaxCreateRevision) &&
		(req.MinCreateRevision == 0 || created >= req.MinCreateRevision)
}

// order sorts key-values that are in key order already. A target other than the key
// without an order means ascending, as in etcd. The sort is not stable, but the
// same as etcd's: both leave equal elements in the same places.
func order(kvs []kvwire.KeyValue, req *pb.RangeRequest) {
	dir := req.SortOrder
	if dir == pb.RangeRequest_NONE && req.SortTarget != pb.RangeRequest_KEY {
		dir = pb.RangeRequest_ASCEND
	}
	compare := comparison(req.SortTarget)
	switch {
	case dir == pb.RangeRequest_DESCEND:
		slices.SortFunc(kvs, func(a, b kvwire.KeyValue) int { return compare(b, a) })
	case dir == pb.RangeRequest_ASCEND && req.SortTarget != pb.RangeRequest_KEY:
		slices.SortFunc(kvs, compare)
	}
}

func comparison(target pb.RangeRequest_SortTarget) func(a, b kvwire.KeyValue) int {
	switch target {
	case pb.RangeRequest_VERSION:
		return func(a, b kvwire.KeyValue) int { return cmp.Compare(a.Version(), b.Version()) }
	case pb.RangeRequest_CREATE:
		return func(a, b kvwire.KeyValue) int { return cmp.Compare(a.CreateRevision(), b.CreateRevision()) }
	case pb.RangeRequest_MOD:
		return func(a, b kvwire.KeyValue) int { return cmp.Compare(a.ModRevision(), b.ModRevision()) }
	case pb.RangeRequest_VALUE:
		return func(a, b kvwire.KeyValue) int { return bytes.Compare(a.Value(), b.Value()) }
	}
	return func(a, b kvwire.KeyValue) int { return bytes.Compare(a.Key(), b.Key()) }
}

// withoutValues takes the values away, and the leases, too, unless the values were
// needed for the order: etcd answers from its index, which has no leases.
func withoutValues(kvs []kvwire.KeyValue, req *pb.RangeRequest) {
	for i, kv := range kvs {
		lease := kv.Lease()
		kvs[i] = kv.WithoutValue()
		if lease != 0 && req.SortTarget == pb.RangeRequest_VALUE {
			m := kvs[i].Message()
			m.Lease = lease
			kvs[i] = kvwire.Of(m)
		}
	}
}
