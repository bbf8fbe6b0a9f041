package rpc

import (
	"maps"
	"slices"
	"strings"

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
	ranges []span // in order, apart from each other
}

// span is the keys from one to before another.
type span struct{ from, end string }

// newSpans is what the operations of a list delete. Like etcd it takes a range's end as it stands, and doesn't see that the
// end "\x00" means every key, so a put beside such a delete passes.
func newSpans(ops []*pb.RequestOp) (d spans) {
	for _, op := range ops {
		switch r := op.GetRequestDeleteRange(); {
		case r == nil:
		case len(r.RangeEnd) == 0:
			if d.points == nil {
				d.points = map[string]struct{}{}
			}
			d.points[string(r.Key)] = struct{}{}
		case string(r.Key) < string(r.RangeEnd):
			d.ranges = append(d.ranges, span{string(r.Key), string(r.RangeEnd)})
		}
	}
	d.ranges = joined(d.ranges)
	return d
}

func (d *spans) merge(o spans) {
	d.points = union(d.points, o.points)
	if len(o.ranges) > 0 {
		d.ranges = joined(append(d.ranges, o.ranges...))
	}
}

func (d *spans) has(key string) bool {
	if _, ok := d.points[key]; ok {
		return true
	}
	behind, at := slices.BinarySearchFunc(d.ranges, key, func(s span, key string) int { return strings.Compare(s.from, key) })
	return at || behind > 0 && key < d.ranges[behind-1].end
}

// joined sorts ranges, and makes one of those that meet.
func joined(ranges []span) []span {
	slices.SortFunc(ranges, func(a, b span) int { return strings.Compare(a.from, b.from) })
	n := 0
	for _, s := range ranges {
		if n > 0 && s.from <= ranges[n-1].end {
			ranges[n-1].end = max(ranges[n-1].end, s.end)
			continue
		}
		ranges[n] = s
		n++
	}
	return ranges[:n]
}

// union adds one set to the other, the smaller to the larger: a key is moved a few times, however deep it lies.
func union(a, b map[string]struct{}) map[string]struct{} {
	if len(a) < len(b) {
		a, b = b, a
	}
	maps.Copy(a, b)
	return a
}

// overlaps goes over one list in etcd's order, which decides what it lets pass:
// the list's own deletes first, then the transactions inside one after the
// other, then the list's own puts. A put inside a transaction is thus checked
// against deletes beside it and before it, not against those in later ones.
func overlaps(ops []*pb.RequestOp) (puts map[string]struct{}, dels spans, err error) {
	dels = newSpans(ops)
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
		// The two branches exclude each other: neither is checked against the other's keys.
		for _, branch := range [2]map[string]struct{}{thenPuts, elsePuts} {
			for k := range branch {
				if _, twice := puts[k]; twice || dels.has(k) {
					return nil, dels, rpctypes.ErrGRPCDuplicateKey
				}
			}
		}
		puts = union(union(thenPuts, elsePuts), puts)
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
