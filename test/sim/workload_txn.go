package sim

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// rarer are requests that only runs with some of all have (features.go): transactions in transactions, and what else etcd's
// requests can say.
var rarer = []weighted{
	{8, (*cluster).drawnTxn},
	{4, (*cluster).drawnRead},
	{4, (*cluster).putKeeping},
	{4, (*cluster).listSome},
}

// drawnTxn is any transaction, over any partitions, with others in it.
func (c *cluster) drawnTxn() request {
	d := &txnDraw{c: c, free: slices.Clone(c.keys.single)}
	r := d.txn(2)
	r.Success = append(r.Success, d.put())
	return strictly(r)
}

// drawnRead is one that changes nothing.
func (c *cluster) drawnRead() request { return strictly((&txnDraw{c: c}).txn(2)) }

// txnDraw draws a transaction. What etcd refuses is no part of it: a key that is written twice.
type txnDraw struct {
	c    *cluster
	free []string // keys that nothing in it writes yet
}

func (d *txnDraw) txn(depth int) *pb.TxnRequest {
	r, l := &pb.TxnRequest{}, d.c.loop
	for range l.rng.IntN(3) {
		r.Compare = append(r.Compare, d.compare())
	}
	for range 1 + l.rng.IntN(3) {
		r.Success = append(r.Success, d.op(depth))
	}
	for range l.rng.IntN(3) {
		r.Failure = append(r.Failure, d.op(depth))
	}
	return r
}

func (d *txnDraw) op(depth int) *pb.RequestOp {
	switch l := d.c.loop; {
	case depth > 0 && l.chance(3):
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: d.txn(depth - 1)}}
	case len(d.free) > 0 && l.chance(2):
		return d.put()
	case len(d.free) > 0 && l.chance(3):
		return del(d.take())
	case l.chance(2):
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: d.c.filtered()}}
	}
	return get(pick(d.c.loop, d.c.keys.single))
}

// take is a key that nothing else will write.
func (d *txnDraw) take() string {
	i := d.c.loop.rng.IntN(len(d.free))
	key := d.free[i]
	d.free = slices.Delete(d.free, i, i+1)
	return key
}

func (d *txnDraw) put() *pb.RequestOp {
	if len(d.free) == 0 {
		return get(pick(d.c.loop, d.c.keys.single))
	}
	r := &pb.PutRequest{Key: []byte(d.take()), PrevKv: d.c.loop.chance(3)}
	d.c.fill(r)
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}}
}

// fill draws what is written: mostly a value, at times the value or the lease that the key has already.
func (c *cluster) fill(r *pb.PutRequest) {
	if r.IgnoreValue = c.loop.chance(8); !r.IgnoreValue {
		r.Value = c.value()
	}
	if r.IgnoreLease = c.loop.chance(8); !r.IgnoreLease && c.loop.chance(5) {
		if ids := c.leases(); len(ids) > 0 {
			r.Lease = pick(c.loop, ids)
		}
	}
}

func (c *cluster) putKeeping() request {
	r := &pb.PutRequest{Key: c.single(), PrevKv: c.loop.chance(3)}
	c.fill(r)
	return strictly(r)
}

// compare draws a condition of one key or of a directory.
func (d *txnDraw) compare() *pb.Compare {
	c := d.c
	r := &pb.Compare{Result: pick(c.loop, []pb.Compare_CompareResult{pb.Compare_EQUAL, pb.Compare_NOT_EQUAL, pb.Compare_LESS, pb.Compare_GREATER})}
	if r.Key = c.single(); c.loop.chance(3) {
		r.Key, r.RangeEnd = prefix(pick(c.loop, c.keys.dirs))
	}
	switch c.loop.rng.IntN(5) {
	case 0:
		r.Target, r.TargetUnion = pb.Compare_MOD, &pb.Compare_ModRevision{ModRevision: c.recent()}
	case 1:
		r.Target, r.TargetUnion = pb.Compare_CREATE, &pb.Compare_CreateRevision{CreateRevision: c.recent()}
	case 2:
		r.Target, r.TargetUnion = pb.Compare_VERSION, &pb.Compare_Version{Version: int64(c.loop.rng.IntN(3))}
	case 3:
		r.Target, r.TargetUnion = pb.Compare_LEASE, &pb.Compare_Lease{}
	default:
		r.Target, r.TargetUnion = pb.Compare_VALUE, &pb.Compare_Value{Value: []byte("v5")}
	}
	return r
}

// filtered is a read of a directory or of all keys of which not all is told. A write that reads all keys could see a key that
// is in one server alone (flips.go).
func (c *cluster) filtered() *pb.RangeRequest {
	r := &pb.RangeRequest{KeysOnly: c.loop.chance(3)}
	if r.Key, r.RangeEnd = prefix(pick(c.loop, c.keys.dirs)); !c.has.checks && c.loop.chance(3) {
		r.Key, r.RangeEnd = []byte{0}, []byte{0}
	}
	if c.loop.chance(2) {
		r.SortOrder = pb.RangeRequest_DESCEND
	}
	if c.loop.chance(3) {
		r.Limit = int64(1 + c.loop.rng.IntN(4))
	}
	if c.loop.chance(3) {
		r.MinModRevision = c.recent()
	}
	if c.loop.chance(6) {
		r.MaxModRevision = c.recent()
	}
	if c.loop.chance(4) {
		r.Revision = max(1, c.floor-int64(c.loop.rng.IntN(10)))
	}
	return r
}

func (c *cluster) listSome() request { return c.either(c.filtered()) }
