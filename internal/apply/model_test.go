package apply

import (
	"bytes"
	"maps"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/fault"
)

// model is etcd as its documentation has it, in the most naive way: a whole map
// of the keys for every revision. It shares no code with apply.
type model struct {
	states    []state // ascending; the first is the empty one at revision 1
	compacted int64
	leases    map[int64]int64 // id to TTL
}

type state struct {
	rev int64
	kvs map[string]*mvccpb.KeyValue
}

func newModel() *model {
	return &model{states: []state{{rev: 1, kvs: map[string]*mvccpb.KeyValue{}}}, compacted: -1, leases: map[int64]int64{}}
}

func (m *model) last() state { return m.states[len(m.states)-1] }

func (m *model) at(rev int64) state {
	i := len(m.states) - 1
	for m.states[i].rev > rev {
		i--
	}
	return m.states[i]
}

// modelTxn is one write in the making.
type modelTxn struct {
	*model
	before  int64 // the revision of the state found
	rev     int64 // the revision if it writes
	idle    int64 // the revision to answer with if it doesn't
	old     map[string]*mvccpb.KeyValue
	kvs     map[string]*mvccpb.KeyValue
	changes int
}

// run executes a request at a stamp, 0 for none.
func (m *model) run(stamp int64, req proto.Message) (proto.Message, error) {
	t := &modelTxn{model: m, before: m.last().rev, old: m.last().kvs, kvs: maps.Clone(m.last().kvs)}
	t.rev, t.idle = t.before+1, t.before
	if stamp > 0 {
		t.before, t.rev, t.idle = stamp-1, stamp, stamp
	}
	resp, err := t.request(req)
	if err == nil && t.changes > 0 {
		m.states = append(m.states, state{t.rev, t.kvs})
	}
	return resp, err
}

func (t *modelTxn) request(req proto.Message) (proto.Message, error) {
	if o, is := req.(opening); is {
		req = o.LeaseGrantRequest
	}
	switch r := req.(type) {
	case *pb.PutRequest:
		if err := t.checkPut(r); err != nil {
			return nil, err
		}
		return t.put(r), nil
	case *pb.DeleteRangeRequest:
		return t.delete(r), nil
	case *pb.TxnRequest:
		plan := map[*pb.TxnRequest]bool{}
		t.decide(r, plan)
		if err := t.check(r, plan); err != nil {
			return nil, err
		}
		return t.txn(r, plan), nil
	case *pb.CompactionRequest:
		if r.Revision <= t.compacted {
			return nil, fault.Compacted
		}
		if r.Revision > t.before {
			return nil, fault.FutureRevision
		}
		t.compacted = r.Revision
		return &pb.CompactionResponse{Header: head(t.before)}, nil
	case *pb.LeaseGrantRequest:
		if t.leases[r.ID] != 0 {
			return nil, fault.LeaseExists
		}
		t.leases[r.ID] = r.TTL
		return &pb.LeaseGrantResponse{Header: head(t.before), ID: r.ID, TTL: r.TTL}, nil
	case *pb.LeaseRevokeRequest:
		if t.leases[r.ID] == 0 {
			return nil, fault.LeaseNotFound
		}
		delete(t.leases, r.ID)
		for k, kv := range t.kvs {
			if kv.Lease == r.ID {
				delete(t.kvs, k)
				t.changes++
			}
		}
		return &pb.LeaseRevokeResponse{Header: head(t.now())}, nil
	}
	panic("no such request in the model")
}

func head(rev int64) *pb.ResponseHeader { return &pb.ResponseHeader{Revision: rev} }

// now is the revision that a write answers with at this point.
func (t *modelTxn) now() int64 {
	if t.changes > 0 {
		return t.rev
	}
	return t.idle
}

func (t *modelTxn) checkPut(r *pb.PutRequest) error {
	if r.Lease != 0 && t.leases[r.Lease] == 0 {
		return fault.LeaseNotFound
	}
	if (r.IgnoreValue || r.IgnoreLease) && t.old[string(r.Key)] == nil {
		return fault.KeyNotFound
	}
	return nil
}

func (t *modelTxn) put(r *pb.PutRequest) *pb.PutResponse {
	prev := t.kvs[string(r.Key)]
	kv := &mvccpb.KeyValue{Key: r.Key, Value: r.Value, Lease: r.Lease, CreateRevision: t.rev, ModRevision: t.rev, Version: 1}
	if prev != nil {
		kv.CreateRevision, kv.Version = prev.CreateRevision, prev.Version+1
	}
	if r.IgnoreValue {
		kv.Value = prev.GetValue()
	}
	if r.IgnoreLease {
		kv.Lease = prev.GetLease()
	}
	t.kvs[string(r.Key)] = kv
	t.changes++
	resp := &pb.PutResponse{Header: head(t.rev)}
	if r.PrevKv {
		resp.PrevKv = prev
	}
	return resp
}

func (t *modelTxn) delete(r *pb.DeleteRangeRequest) *pb.DeleteRangeResponse {
	resp := &pb.DeleteRangeResponse{}
	for _, kv := range inRange(t.kvs, r.Key, r.RangeEnd) {
		delete(t.kvs, string(kv.Key))
		t.changes++
		resp.Deleted++
		if r.PrevKv {
			resp.PrevKvs = append(resp.PrevKvs, kv)
		}
	}
	resp.Header = head(t.now())
	return resp
}

func inRange(kvs map[string]*mvccpb.KeyValue, key, end []byte) []*mvccpb.KeyValue {
	var out []*mvccpb.KeyValue
	for k, kv := range kvs {
		in := k == string(key)
		if len(end) > 0 {
			in = k >= string(key) && (k < string(end) || string(end) == "\x00")
		}
		if in {
			out = append(out, kv)
		}
	}
	slices.SortFunc(out, func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) })
	return out
}

func (t *modelTxn) branch(r *pb.TxnRequest, plan map[*pb.TxnRequest]bool) []*pb.RequestOp {
	if plan[r] {
		return r.Success
	}
	return r.Failure
}

func (t *modelTxn) decide(r *pb.TxnRequest, plan map[*pb.TxnRequest]bool) {
	plan[r] = true
	for _, c := range r.Compare {
		kvs := inRange(t.old, c.Key, c.RangeEnd)
		if len(kvs) == 0 && c.Target == pb.Compare_VALUE {
			plan[r] = false
		}
		if len(kvs) == 0 {
			kvs = append(kvs, &mvccpb.KeyValue{})
		}
		for _, kv := range kvs {
			plan[r] = plan[r] && modelHolds(c, kv)
		}
	}
	for _, op := range t.branch(r, plan) {
		if n := op.GetRequestTxn(); n != nil {
			t.decide(n, plan)
		}
	}
}

func modelHolds(c *pb.Compare, kv *mvccpb.KeyValue) bool {
	less, greater := false, false
	number := func(a, b int64) { less, greater = a < b, a > b }
	switch c.Target {
	case pb.Compare_VALUE:
		less, greater = string(kv.Value) < string(c.GetValue()), string(kv.Value) > string(c.GetValue())
	case pb.Compare_CREATE:
		number(kv.CreateRevision, c.GetCreateRevision())
	case pb.Compare_MOD:
		number(kv.ModRevision, c.GetModRevision())
	case pb.Compare_VERSION:
		number(kv.Version, c.GetVersion())
	case pb.Compare_LEASE:
		number(kv.Lease, c.GetLease())
	}
	return map[pb.Compare_CompareResult]bool{
		pb.Compare_EQUAL: !less && !greater, pb.Compare_NOT_EQUAL: less || greater,
		pb.Compare_LESS: less, pb.Compare_GREATER: greater,
	}[c.Result]
}

func (t *modelTxn) check(r *pb.TxnRequest, plan map[*pb.TxnRequest]bool) error {
	for _, op := range t.branch(r, plan) {
		var err error
		switch {
		case op.GetRequestPut() != nil:
			err = t.checkPut(op.GetRequestPut())
		case op.GetRequestRange() != nil:
			if rev := op.GetRequestRange().Revision; rev > t.before {
				err = fault.FutureRevision
			} else if rev != 0 && rev < t.compacted {
				err = fault.Compacted
			}
		case op.GetRequestTxn() != nil:
			err = t.check(op.GetRequestTxn(), plan)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *modelTxn) txn(r *pb.TxnRequest, plan map[*pb.TxnRequest]bool) *pb.TxnResponse {
	resp := &pb.TxnResponse{Succeeded: plan[r]}
	for _, op := range t.branch(r, plan) {
		out := &pb.ResponseOp{}
		switch {
		case op.GetRequestPut() != nil:
			out.Response = &pb.ResponseOp_ResponsePut{ResponsePut: t.put(op.GetRequestPut())}
		case op.GetRequestDeleteRange() != nil:
			del := t.delete(op.GetRequestDeleteRange())
			if del.Header = head(t.before); t.changes > 0 {
				del.Header = head(t.rev) // the state that is seen inside
			}
			out.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: del}
		case op.GetRequestRange() != nil:
			kvs, rev := t.kvs, t.before
			if t.changes > 0 {
				rev = t.rev
			}
			if r := op.GetRequestRange().Revision; r > 0 {
				kvs = t.at(r).kvs
			}
			out.Response = &pb.ResponseOp_ResponseRange{ResponseRange: modelRange(kvs, rev, op.GetRequestRange())}
		case op.GetRequestTxn() != nil:
			nested := t.txn(op.GetRequestTxn(), plan)
			nested.Header = &pb.ResponseHeader{} // as in etcd
			out.Response = &pb.ResponseOp_ResponseTxn{ResponseTxn: nested}
		}
		resp.Responses = append(resp.Responses, out)
	}
	resp.Header = head(t.now())
	return resp
}

// read evaluates a range as of a revision.
func (m *model) read(at int64, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	rev := r.Revision
	if rev <= 0 {
		rev = at
	}
	switch {
	case rev > at:
		return nil, fault.FutureRevision
	case rev < m.compacted:
		return nil, fault.Compacted
	}
	return modelRange(m.at(rev).kvs, at, r), nil
}

func modelRange(kvs map[string]*mvccpb.KeyValue, rev int64, r *pb.RangeRequest) *pb.RangeResponse {
	all := inRange(kvs, r.Key, r.RangeEnd)
	resp := &pb.RangeResponse{Header: head(rev), Count: int64(len(all))}
	if r.CountOnly {
		return resp
	}
	// A limit without filters and without an explicit order counts keys in key
	// order, even if the answer is then sorted by another target: so says etcd's
	// behaviour, not its documentation.
	unfiltered := r.MinModRevision == 0 && r.MaxModRevision == 0 && r.MinCreateRevision == 0 && r.MaxCreateRevision == 0
	if r.SortOrder == pb.RangeRequest_NONE && unfiltered && r.Limit > 0 {
		all = all[:min(len(all), int(r.Limit)+1)]
	}
	var some []*mvccpb.KeyValue
	for _, kv := range all {
		if r.MinModRevision != 0 && kv.ModRevision < r.MinModRevision || r.MaxModRevision != 0 && kv.ModRevision > r.MaxModRevision ||
			r.MinCreateRevision != 0 && kv.CreateRevision < r.MinCreateRevision || r.MaxCreateRevision != 0 && kv.CreateRevision > r.MaxCreateRevision {
			continue
		}
		some = append(some, proto.Clone(kv).(*mvccpb.KeyValue))
	}
	slices.SortStableFunc(some, func(a, b *mvccpb.KeyValue) int {
		var c int
		switch r.SortTarget {
		case pb.RangeRequest_KEY:
			c = bytes.Compare(a.Key, b.Key)
		case pb.RangeRequest_VALUE:
			c = bytes.Compare(a.Value, b.Value)
		case pb.RangeRequest_VERSION:
			c = int(a.Version - b.Version)
		case pb.RangeRequest_CREATE:
			c = int(a.CreateRevision - b.CreateRevision)
		case pb.RangeRequest_MOD:
			c = int(a.ModRevision - b.ModRevision)
		}
		if r.SortOrder == pb.RangeRequest_DESCEND {
			c = -c
		}
		return c
	})
	if r.Limit > 0 && int64(len(some)) > r.Limit {
		some, resp.More = some[:r.Limit], true
	}
	for _, kv := range some {
		if r.KeysOnly {
			kv.Value = nil
			if r.SortTarget != pb.RangeRequest_VALUE {
				kv.Lease = 0
			}
		}
	}
	resp.Kvs = some
	return resp
}
