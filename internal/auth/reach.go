package auth

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// Reach finds the quotas that a request of a user counts for, of those with a limit of one
// kind: the quotas of the user's roles, and of the prefixes that the request touches. It never
// changes.
//
// A request that touches more than a prefix counts for it too: else a user with rights beyond
// the prefix could evade its limit. One that the user isn't permitted counts for no prefix, so
// that the limit can't be used up from outside. Users with the role root, and the servers
// themselves, aren't limited: they have to look after the others.
type Reach struct {
	Quotas   []Quota // all; the numbers of quotas are positions in it
	roles    map[string]int32
	prefixes segments
}

// Rates returns the reach of the quotas with a rate, nil if none in force has one.
func (s *State) Rates() *Reach { return s.rates }

// Watches returns the reach of the quotas with a limit of watches, nil if none in force has
// one.
func (s *State) Watches() *Reach { return s.watches }

func (s *State) newReach(limit func(*Limits) int64) *Reach {
	x := &Reach{Quotas: s.quotas, roles: map[string]int32{}}
	keys, found := make([]spans, len(s.quotas)), false
	for i := range s.quotas {
		q := &s.quotas[i]
		if limit(&q.Limits) == 0 {
			continue
		}
		found = true
		if q.Role != "" {
			x.roles[q.Role] = int32(i)
		} else {
			keys[i] = s.limited(q)
		}
	}
	if !found {
		return nil
	}
	x.prefixes = newSegments(keys)
	return x
}

// OfUser returns the quotas of the user's roles, in order.
func (x *Reach) OfUser(u *User) (list []int32) {
	if u.IsRoot() || len(x.roles) == 0 {
		return nil
	}
	for _, r := range u.Roles {
		if q, ok := x.roles[r]; ok {
			list = union(list, []int32{q})
		}
	}
	return list
}

// OfRead returns the quotas of a read of a range, or of one key without an end, in order.
func (x *Reach) OfRead(u *User, key, end []byte) []int32 {
	list := x.OfUser(u)
	if u.IsRoot() || len(x.prefixes.bounds) == 0 || u.MayRead(key, end) != nil {
		return list
	}
	return x.prefixes.touched(list, key, end)
}

// OfPut returns the quotas of a plain put, in order.
func (x *Reach) OfPut(u *User, key []byte) []int32 {
	list := x.OfUser(u)
	if u.IsRoot() || len(x.prefixes.bounds) == 0 || u.MayWrite(key, nil) != nil {
		return list
	}
	return x.prefixes.touched(list, key, nil)
}

// Of returns the quotas of a request, in order. One without keys counts for roles alone.
func (x *Reach) Of(u *User, req proto.Message) []int32 {
	list := x.OfUser(u)
	if u.IsRoot() || len(x.prefixes.bounds) == 0 || req == nil || u.May(req) != nil {
		return list
	}
	switch r := req.(type) {
	case *pb.PutRequest:
		return x.prefixes.touched(list, r.GetKey(), nil)
	case *pb.DeleteRangeRequest:
		return x.prefixes.touched(list, r.GetKey(), r.GetRangeEnd())
	case *pb.RangeRequest:
		return x.prefixes.touched(list, r.GetKey(), r.GetRangeEnd())
	case *pb.WatchCreateRequest:
		return x.prefixes.touched(list, r.GetKey(), r.GetRangeEnd())
	case *pb.TxnRequest:
		return x.ofTxn(list, r)
	}
	return list
}

// ofTxn adds the quotas of all keys that a transaction names, in whichever branch.
func (x *Reach) ofTxn(list []int32, r *pb.TxnRequest) []int32 {
	for _, c := range r.GetCompare() {
		list = x.prefixes.touched(list, c.GetKey(), c.GetRangeEnd())
	}
	for _, ops := range [...][]*pb.RequestOp{r.GetSuccess(), r.GetFailure()} {
		for _, op := range ops {
			switch r := op.GetRequest().(type) {
			case *pb.RequestOp_RequestRange:
				list = x.prefixes.touched(list, r.RequestRange.GetKey(), r.RequestRange.GetRangeEnd())
			case *pb.RequestOp_RequestPut:
				list = x.prefixes.touched(list, r.RequestPut.GetKey(), nil)
			case *pb.RequestOp_RequestDeleteRange:
				list = x.prefixes.touched(list, r.RequestDeleteRange.GetKey(), r.RequestDeleteRange.GetRangeEnd())
			case *pb.RequestOp_RequestTxn:
				list = x.ofTxn(list, r.RequestTxn)
			}
		}
	}
	return list
}
