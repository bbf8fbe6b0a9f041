package compose

import (
	"bytes"
	"cmp"
	"fmt"

	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/stoa-kv/stoa/client/compose/internal/commit"
)

// across is a transaction over several clusters: which keys it has where, and, given their
// values, its outcome. Package commit has the protocol, transact.go carries it out.
type across struct {
	asked *pb.TxnRequest
	parts []acrossPart // home's first
}

type acrossPart struct {
	cluster int
	keys    []acrossKey
	places  map[string]int // of keys, by their names in the composition
}

type acrossKey struct {
	*route
	here string // its name in the composition
	kv   *commit.KV
}

// across splits a transaction. Nil: it isn't one over several clusters whose keys may all be
// locked.
func (c *Client) across(m proto.Message) (*across, error) {
	t, ok := m.(*pb.TxnRequest)
	if !ok || c.check() != nil || !c.core.routes.locks {
		return nil, nil
	}
	if c.session != nil {
		if err := c.session.Err(); err != nil {
			return nil, err
		}
	}
	return c.core.routes.split(t)
}

func (t *routing) split(m *pb.TxnRequest) (*across, error) {
	x := &across{asked: m}
	if !x.collect(t) || len(x.parts) < 2 {
		return nil, nil
	}
	for i, p := range x.parts {
		if x.writesIn(p) {
			x.parts[0], x.parts[i] = x.parts[i], x.parts[0]
			break
		}
	}
	for _, p := range x.parts {
		for _, k := range p.keys {
			if isReserved(k.keyThere(k.here)) {
				return nil, fmt.Errorf("%w: %q", ErrReserved, k.here)
			}
		}
		if len(p.keys) > commit.MaxKeys {
			return nil, fmt.Errorf("%w: %d keys in cluster %s, %d are possible", ErrTransactions, len(p.keys), t.names[p.cluster], commit.MaxKeys)
		}
	}
	return x, x.check()
}

// collect finds all keys, those that are written first. False: one of them has no route with
// Transactions.
func (x *across) collect(t *routing) bool {
	for _, writes := range []bool{true, false} {
		for _, ops := range [][]*pb.RequestOp{x.asked.Success, x.asked.Failure} {
			for _, op := range ops {
				for _, key := range keysOf(op, writes) {
					if !x.add(t, key) {
						return false
					}
				}
			}
		}
	}
	for _, c := range x.asked.Compare {
		if !x.add(t, c.Key) {
			return false
		}
	}
	return true
}

// keysOf are the keys of an operation that writes, or of one that reads; the first keys of its
// ranges stand for all.
func keysOf(op *pb.RequestOp, writes bool) (keys [][]byte) {
	switch o := op.Request.(type) {
	case *pb.RequestOp_RequestPut:
		if writes {
			return [][]byte{o.RequestPut.Key}
		}
	case *pb.RequestOp_RequestDeleteRange:
		if writes {
			return [][]byte{o.RequestDeleteRange.Key}
		}
	case *pb.RequestOp_RequestRange:
		if !writes {
			return [][]byte{o.RequestRange.Key}
		}
	case *pb.RequestOp_RequestTxn:
		for _, c := range o.RequestTxn.Compare {
			keys = append(keys, c.Key)
		}
		for _, ops := range [][]*pb.RequestOp{o.RequestTxn.Success, o.RequestTxn.Failure} {
			for _, op := range ops {
				keys = append(keys, keysOf(op, writes)...)
			}
		}
	}
	return keys
}

func (x *across) add(t *routing, key []byte) bool {
	r := t.find(string(key))
	if r == nil || !r.locks {
		return false
	}
	if x.find(key) != nil {
		return true
	}
	for i := range x.parts {
		if p := &x.parts[i]; p.cluster == r.cluster {
			p.add(r, string(key))
			return true
		}
	}
	p := acrossPart{cluster: r.cluster, places: map[string]int{}}
	p.add(r, string(key))
	x.parts = append(x.parts, p)
	return true
}

func (p *acrossPart) add(r *route, key string) {
	p.places[key] = len(p.keys)
	p.keys = append(p.keys, acrossKey{route: r, here: key})
}

func (x *across) find(key []byte) *acrossKey {
	for i := range x.parts {
		if at, ok := x.parts[i].places[string(key)]; ok {
			return &x.parts[i].keys[at]
		}
	}
	return nil
}

func (x *across) writesIn(p acrossPart) bool {
	for _, ops := range [][]*pb.RequestOp{x.asked.Success, x.asked.Failure} {
		for _, op := range ops {
			for _, key := range keysOf(op, true) {
				if k := x.find(key); k != nil && k.cluster == p.cluster {
					return true
				}
			}
		}
	}
	return false
}

// check refuses what only one cluster could do.
func (x *across) check() error {
	for _, c := range x.asked.Compare {
		if len(c.RangeEnd) > 0 {
			return fmt.Errorf("%w: a comparison of a range, from %q", ErrTransactions, c.Key)
		}
	}
	for _, ops := range [][]*pb.RequestOp{x.asked.Success, x.asked.Failure} {
		written := map[string]bool{}
		for _, op := range ops {
			if err := checkAcross(op, written); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkAcross(op *pb.RequestOp, written map[string]bool) error {
	why := ""
	var key []byte
	switch o := op.Request.(type) {
	case *pb.RequestOp_RequestRange:
		r := o.RequestRange
		key = r.Key
		switch {
		case len(r.RangeEnd) > 0:
			why = "a range"
		case r.Revision != 0:
			why = "a read at a revision"
		case r.MinModRevision != 0 || r.MaxModRevision != 0 || r.MinCreateRevision != 0 || r.MaxCreateRevision != 0:
			why = "a read that chooses by revisions"
		case written[string(key)]:
			why = "a read behind a write of the same key"
		}
	case *pb.RequestOp_RequestPut:
		r := o.RequestPut
		key = r.Key
		switch {
		case r.Lease != 0:
			why = "a lease"
		case r.IgnoreValue || r.IgnoreLease:
			why = "a put that ignores the value or the lease"
		case written[string(key)]:
			return rpctypes.ErrDuplicateKey
		}
		written[string(key)] = true
	case *pb.RequestOp_RequestDeleteRange:
		key = o.RequestDeleteRange.Key
		switch {
		case len(o.RequestDeleteRange.RangeEnd) > 0:
			why = "a deletion of a range"
		case written[string(key)]:
			return rpctypes.ErrDuplicateKey
		}
		written[string(key)] = true
	default:
		why = "a transaction within a transaction"
	}
	if why != "" {
		return fmt.Errorf("%w: %s, in a transaction over several (key %q)", ErrTransactions, why, key)
	}
	return nil
}

// take gives it the values of a part.
func (x *across) take(part int, kvs []*commit.KV) {
	for i := range kvs {
		x.parts[part].keys[i].kv = kvs[i]
	}
}

// decide evaluates it: the answer, and the changes of each part; nil if nothing changes.
func (x *across) decide() (*pb.TxnResponse, [][]commit.Write) {
	a := &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: true}
	for _, c := range x.asked.Compare {
		a.Succeeded = a.Succeeded && compare(c, x.find(c.Key).kv)
	}
	ops := x.asked.Failure
	if a.Succeeded {
		ops = x.asked.Success
	}
	writes, changes := make([][]commit.Write, len(x.parts)), false
	for _, op := range ops {
		response, key, w := x.execute(op)
		a.Responses = append(a.Responses, response)
		if w != nil {
			w.Key = []byte(key.keyThere(key.here))
			for i := range x.parts {
				if x.parts[i].cluster == key.cluster {
					writes[i], changes = append(writes[i], *w), true
				}
			}
		}
	}
	if !changes {
		return a, nil
	}
	return a, writes
}

// execute answers one operation. The change has no key yet.
func (x *across) execute(op *pb.RequestOp) (*pb.ResponseOp, *acrossKey, *commit.Write) {
	switch o := op.Request.(type) {
	case *pb.RequestOp_RequestPut:
		k := x.find(o.RequestPut.Key)
		a := &pb.PutResponse{Header: &pb.ResponseHeader{}}
		if o.RequestPut.PrevKv {
			a.PrevKv = k.message()
		}
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: a}}, k, &commit.Write{Value: o.RequestPut.Value}
	case *pb.RequestOp_RequestDeleteRange:
		k := x.find(o.RequestDeleteRange.Key)
		a := &pb.DeleteRangeResponse{Header: &pb.ResponseHeader{}}
		var w *commit.Write
		if kv := k.message(); kv != nil {
			a.Deleted, w = 1, &commit.Write{Delete: true}
			if o.RequestDeleteRange.PrevKv {
				a.PrevKvs = append(a.PrevKvs, kv)
			}
		}
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: a}}, k, w
	}
	r := op.GetRequestRange()
	k := x.find(r.Key)
	a := &pb.RangeResponse{Header: &pb.ResponseHeader{}}
	if kv := k.message(); kv != nil {
		a.Count = 1
		if r.KeysOnly {
			kv.Value = nil
		}
		if !r.CountOnly {
			a.Kvs = append(a.Kvs, kv)
		}
	}
	return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: a}}, k, nil
}

// message is the key as it is shown, nil if there is none.
func (k *acrossKey) message() *mvccpb.KeyValue {
	if k.kv == nil {
		return nil
	}
	return &mvccpb.KeyValue{Key: []byte(k.here), Value: k.kv.Value, CreateRevision: k.kv.Create,
		ModRevision: k.kv.Mod, Version: k.kv.Version, Lease: k.kv.Lease}
}

func fromKV(kv *mvccpb.KeyValue) *commit.KV {
	return &commit.KV{Key: string(kv.Key), Value: kv.Value, Create: kv.CreateRevision, Mod: kv.ModRevision,
		Version: kv.Version, Lease: kv.Lease}
}

// compare compares as etcd does: what doesn't exist has no value, and is 0 in all else.
func compare(c *pb.Compare, kv *commit.KV) bool {
	if kv == nil {
		if c.Target == pb.Compare_VALUE {
			return false
		}
		kv = &commit.KV{}
	}
	order := 0
	switch c.Target {
	case pb.Compare_VALUE:
		order = bytes.Compare(kv.Value, c.GetValue())
	case pb.Compare_CREATE:
		order = cmp.Compare(kv.Create, c.GetCreateRevision())
	case pb.Compare_MOD:
		order = cmp.Compare(kv.Mod, c.GetModRevision())
	case pb.Compare_VERSION:
		order = cmp.Compare(kv.Version, c.GetVersion())
	case pb.Compare_LEASE:
		order = cmp.Compare(kv.Lease, c.GetLease())
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return order == 0
	case pb.Compare_NOT_EQUAL:
		return order != 0
	case pb.Compare_GREATER:
		return order > 0
	}
	return order < 0
}
