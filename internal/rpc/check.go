package rpc

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Validation of requests: the errors that etcd returns without a look at its
// store.

func checkRange(r *pb.RangeRequest) error {
	if len(r.GetKey()) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	if o := r.SortOrder; o < pb.RangeRequest_NONE || o > pb.RangeRequest_DESCEND {
		return rpctypes.ErrGRPCInvalidSortOption
	}
	if t := r.SortTarget; t < pb.RangeRequest_KEY || t > pb.RangeRequest_VALUE {
		return rpctypes.ErrGRPCInvalidSortOption
	}
	return nil
}

// checkRangeStream also refuses what can't be answered piece by piece in key
// order.
func checkRangeStream(r *pb.RangeRequest) error {
	if err := checkRange(r); err != nil {
		return err
	}
	byKey := r.SortOrder == pb.RangeRequest_NONE || r.SortTarget == pb.RangeRequest_KEY && r.SortOrder == pb.RangeRequest_ASCEND
	if !byKey {
		return status.Error(codes.Unimplemented, "RangeStream does not support custom sort orders")
	}
	if r.MinModRevision != 0 || r.MaxModRevision != 0 || r.MinCreateRevision != 0 || r.MaxCreateRevision != 0 {
		return status.Error(codes.Unimplemented, "RangeStream does not support revision filters")
	}
	return nil
}

func checkPut(r *pb.PutRequest) error {
	switch {
	case len(r.GetKey()) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case r.IgnoreValue && len(r.Value) != 0:
		return rpctypes.ErrGRPCValueProvided
	case r.IgnoreLease && r.Lease != 0:
		return rpctypes.ErrGRPCLeaseProvided
	}
	return nil
}

func checkDelete(r *pb.DeleteRangeRequest) error {
	if len(r.GetKey()) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	return nil
}

// checkTxn allows a transaction limit operations in its largest list; the
// remainder is the limit of the transactions inside it.
func checkTxn(r *pb.TxnRequest, limit int) error {
	largest := max(len(r.GetCompare()), len(r.GetSuccess()), len(r.GetFailure()))
	if largest > limit {
		return rpctypes.ErrGRPCTooManyOps
	}
	for _, c := range r.GetCompare() {
		if len(c.GetKey()) == 0 {
			return rpctypes.ErrGRPCEmptyKey
		}
	}
	for _, ops := range [2][]*pb.RequestOp{r.GetSuccess(), r.GetFailure()} {
		for _, op := range ops {
			if err := checkOp(op, limit-largest); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkOp(op *pb.RequestOp, limit int) error {
	switch r := op.GetRequest().(type) {
	case *pb.RequestOp_RequestRange:
		return checkRange(r.RequestRange)
	case *pb.RequestOp_RequestPut:
		return checkPut(r.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		return checkDelete(r.RequestDeleteRange)
	case *pb.RequestOp_RequestTxn:
		return checkTxn(r.RequestTxn, limit)
	}
	return rpctypes.ErrGRPCKeyNotFound // an empty operation, in etcd's words
}

// checkOverlaps refuses a transaction that puts a key twice, or puts and
// deletes it, on one path through its branches.
func checkOverlaps(r *pb.TxnRequest) error {
	if plain(r.GetSuccess()) && plain(r.GetFailure()) {
		return nil
	}
	if _, _, err := overlaps(r.GetSuccess()); err != nil {
		return err
	}
	_, _, err := overlaps(r.GetFailure())
	return err
}

// plain: at most one operation, and no transaction inside: the most common
// lists can't overlap.
func plain(ops []*pb.RequestOp) bool {
	if len(ops) == 0 {
		return true
	}
	return len(ops) == 1 && ops[0].GetRequestTxn() == nil
}

// spans is a set of deleted keys.
type spans struct {
	points map[string]struct{}
	ranges []*pb.DeleteRangeRequest
}

func (d *spans) add(r *pb.DeleteRangeRequest) {
	if len(r.RangeEnd) > 0 {
		d.ranges = append(d.ranges, r)
		return
	}
	if d.points == nil {
		d.points = map[string]struct{}{}
	}
	d.points[string(r.Key)] = struct{}{}
}

func (d *spans) merge(o spans) {
	for k := range o.points {
		if d.points == nil {
			d.points = map[string]struct{}{}
		}
		d.points[k] = struct{}{}
	}
	d.ranges = append(d.ranges, o.ranges...)
}

// has takes a range's end as it stands: like etcd, it doesn't see that the end
// "\x00" means every key, so a put beside such a delete passes.
func (d *spans) has(key string) bool {
	if _, ok := d.points[key]; ok {
		return true
	}
	for _, r := range d.ranges {
		if key >= string(r.Key) && key < string(r.RangeEnd) {
			return true
		}
	}
	return false
}

// overlaps goes over one list in etcd's order, which decides what it lets pass:
// the list's own deletes first, then the transactions inside one after the
// other, then the list's own puts. A put inside a transaction is thus checked
// against deletes beside it and before it, not against those in later ones.
func overlaps(ops []*pb.RequestOp) (puts map[string]struct{}, dels spans, err error) {
	for _, op := range ops {
		if d := op.GetRequestDeleteRange(); d != nil {
			dels.add(d)
		}
	}
	puts = map[string]struct{}{}
	for _, op := range ops {
		t := op.GetRequestTxn()
		if t == nil {
			continue
		}
		thenPuts, thenDels, err := overlaps(t.Success)
		if err != nil {
			return nil, dels, err
		}
		elsePuts, elseDels, err := overlaps(t.Failure)
		if err != nil {
			return nil, dels, err
		}
		// The two branches exclude each other: only one of them is checked
		// against the other's keys, by way of what was there before.
		before := puts
		puts = make(map[string]struct{}, len(before)+len(thenPuts)+len(elsePuts))
		for k := range before {
			puts[k] = struct{}{}
		}
		for _, branch := range [2]map[string]struct{}{thenPuts, elsePuts} {
			for k := range branch {
				if _, twice := before[k]; twice || dels.has(k) {
					return nil, dels, rpctypes.ErrGRPCDuplicateKey
				}
				puts[k] = struct{}{}
			}
		}
		dels.merge(thenDels)
		dels.merge(elseDels)
	}
	for _, op := range ops {
		p := op.GetRequestPut()
		if p == nil {
			continue
		}
		if _, twice := puts[string(p.Key)]; twice || dels.has(string(p.Key)) {
			return nil, dels, rpctypes.ErrGRPCDuplicateKey
		}
		puts[string(p.Key)] = struct{}{}
	}
	return puts, dels, nil
}
