package sim

import (
	"bytes"
	"cmp"
	"slices"
	"sort"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/stoa-kv/stoa/internal/apply"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/store"
)

// state is what a sequential etcd holds at one revision, in the order of the keys.
type state []*mvccpb.KeyValue

// find is where a key is, or would be.
func (s state) find(key string) int {
	return sort.Search(len(s), func(i int) bool { return string(s[i].Key) >= key })
}

// get returns nil for a key that isn't there.
func (s state) get(key string) *mvccpb.KeyValue {
	if i := s.find(key); i < len(s) && string(s[i].Key) == key {
		return s[i]
	}
	return nil
}

func (s *state) put(kv *mvccpb.KeyValue) {
	if i := s.find(string(kv.Key)); i < len(*s) && bytes.Equal((*s)[i].Key, kv.Key) {
		(*s)[i] = kv
	} else {
		*s = slices.Insert(*s, i, kv)
	}
}

func (s *state) remove(key []byte) {
	if i := s.find(string(key)); i < len(*s) && bytes.Equal((*s)[i].Key, key) {
		*s = slices.Delete(*s, i, i+1)
	}
}

// evaluation is one request carried out on a state: what a sequential etcd would
// answer and change.
type evaluation struct {
	keys    state
	own     bool  // nothing else has these keys
	rev     int64 // what is written now has it
	changes []store.Change
	old     func(rev int64) state // the state at an earlier revision
	who     string                // the client, for extensions
	carries int64                 // the lease that it names to them
	as      string                // its user, as an extension's registrar is noted; "": none
	// recovered is an extension that has kept to its limits after it had not.
	recovered string
	// most is how many of a lease's keys its end deletes; 0: all. One that is much work takes several steps.
	most   int
	began  state // before the request
	bounds bounds
	barred bool // there is no space for it
	// rights are those of the users with few of them; nil: there are none.
	rights *rights
	// handled and unhandled are events on which a user with few rights has run a handler, and for which the rights were missing.
	handled, unhandled int
	unfit              int // events for whose handler there was no space
	// refused: it would be answered with an error, and change nothing.
	refused bool
}

// writable are the keys, which are copied first if something else has them.
func (e *evaluation) writable() *state {
	if !e.own {
		e.keys, e.own = slices.Clone(e.keys), true
	}
	return &e.keys
}

// share returns the keys as they stay, whatever happens to those of the evaluation.
func (e *evaluation) share() state {
	e.own = false
	return e.keys
}

func (e *evaluation) do(req proto.Message) proto.Message {
	switch r := req.(type) {
	case *pb.PutRequest:
		return e.put(r)
	case *pb.DeleteRangeRequest:
		return e.delete(r)
	case *pb.RangeRequest:
		return e.rang(r)
	case *pb.TxnRequest:
		return e.txn(r)
	case *pb.LeaseRevokeRequest:
		return e.revoke(r)
	case *pb.LeaseGrantRequest:
		return &pb.LeaseGrantResponse{ID: r.ID, TTL: r.TTL}
	case *pb.CompactionRequest:
		return &pb.CompactionResponse{}
	case *pb.LeaseKeepAliveRequest:
		return &pb.LeaseKeepAliveResponse{}
	case *pb.WatchCreateRequest:
		return &pb.RangeResponse{}
	}
	panic("the model doesn't know this request")
}

func (e *evaluation) put(r *pb.PutRequest) *pb.PutResponse {
	prev := e.keys.get(string(r.Key))
	kv := &mvccpb.KeyValue{Key: r.Key, Value: r.Value, CreateRevision: e.rev, ModRevision: e.rev, Version: 1, Lease: r.Lease}
	if prev != nil {
		kv.CreateRevision, kv.Version = prev.CreateRevision, prev.Version+1
	}
	if r.IgnoreValue {
		kv.Value = prev.GetValue()
	}
	if r.IgnoreLease {
		kv.Lease = prev.GetLease()
	}
	e.refused = e.refused || prev == nil && (r.IgnoreValue || r.IgnoreLease)
	e.writable().put(kv)
	e.changes = append(e.changes, store.Change{Revision: e.next(), Kv: kvwire.Of(kv), Prev: e.before(kv.Key, prev)})
	for _, n := range notesOf(r.Key) {
		if e.keys.get(string(n.Key)) == nil {
			e.put(n)
		}
	}
	resp := &pb.PutResponse{}
	if r.PrevKv {
		resp.PrevKv = prev
	}
	return resp
}

// before is what a key was before this revision, given what it is now.
func (e *evaluation) before(key []byte, now *mvccpb.KeyValue) kvwire.KeyValue {
	for _, c := range e.changes {
		if bytes.Equal(c.Kv.Key(), key) {
			return c.Prev
		}
	}
	return kvwire.Of(now)
}

// next is the revision of the next change.
func (e *evaluation) next() store.Revision {
	return store.Revision{Main: e.rev, Sub: int64(len(e.changes))}
}

func (e *evaluation) remove(kv *mvccpb.KeyValue) {
	e.writable().remove(kv.Key)
	e.changes = append(e.changes, store.Change{
		Revision: e.next(), Kv: kvwire.Tombstone(kv.Key), Prev: e.before(kv.Key, kv), Delete: true,
	})
}

func (e *evaluation) delete(r *pb.DeleteRangeRequest) *pb.DeleteRangeResponse {
	kvs := e.keys.between(r.Key, r.RangeEnd)
	for _, kv := range kvs {
		e.remove(kv)
	}
	for _, kv := range kvs {
		for _, n := range slices.Backward(notesOf(kv.Key)) {
			if note := e.keys.get(string(n.Key)); note != nil {
				e.remove(note)
			}
		}
	}
	resp := &pb.DeleteRangeResponse{Deleted: int64(len(kvs))}
	if r.PrevKv {
		resp.PrevKvs = kvs
	}
	return resp
}

func (e *evaluation) revoke(r *pb.LeaseRevokeRequest) *pb.LeaseRevokeResponse {
	for _, kv := range e.keys.between([]byte{0}, []byte{0}) {
		if kv.Lease == r.ID && (e.most == 0 || len(e.changes) < e.most) {
			e.remove(kv)
		}
	}
	return &pb.LeaseRevokeResponse{}
}

func (e *evaluation) rang(r *pb.RangeRequest) *pb.RangeResponse {
	keys := e.keys
	if r.Revision > 0 {
		keys = e.old(r.Revision)
	}
	kvs := keys.between(r.Key, r.RangeEnd)
	resp := &pb.RangeResponse{Count: int64(len(kvs))}
	if r.CountOnly {
		return resp
	}
	kvs = slices.DeleteFunc(kvs, func(kv *mvccpb.KeyValue) bool {
		return kv.ModRevision < r.MinModRevision || r.MaxModRevision != 0 && kv.ModRevision > r.MaxModRevision
	})
	if r.SortOrder == pb.RangeRequest_DESCEND { // by key
		slices.Reverse(kvs)
	}
	if r.Limit > 0 && int64(len(kvs)) > r.Limit {
		kvs, resp.More = kvs[:r.Limit], true
	}
	if r.KeysOnly { // as etcd, which answers from its index, without leases
		for i, kv := range kvs {
			kvs[i] = proto.CloneOf(kv)
			kvs[i].Value, kvs[i].Lease = nil, 0
		}
	}
	resp.Kvs = kvs
	return resp
}

// txn compares, also in the transactions within it, with what was there before it.
func (e *evaluation) txn(r *pb.TxnRequest) *pb.TxnResponse { return e.txnIn(r, e.share()) }

func (e *evaluation) txnIn(r *pb.TxnRequest, before state) *pb.TxnResponse {
	resp := &pb.TxnResponse{Succeeded: true}
	for _, c := range r.Compare {
		resp.Succeeded = resp.Succeeded && before.meets(c)
	}
	ops := r.Success
	if !resp.Succeeded {
		ops = r.Failure
	}
	for _, op := range ops {
		switch o := op.Request.(type) {
		case *pb.RequestOp_RequestPut:
			resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: e.put(o.RequestPut)}})
		case *pb.RequestOp_RequestDeleteRange:
			resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: e.delete(o.RequestDeleteRange)}})
		case *pb.RequestOp_RequestRange:
			resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: e.rang(o.RequestRange)}})
		case *pb.RequestOp_RequestTxn:
			resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: e.txnIn(o.RequestTxn, before)}})
		}
	}
	return resp
}

// meets evaluates a compare. A key that isn't there has zeros, and no value.
func (s state) meets(c *pb.Compare) bool {
	kvs := s.between(c.Key, c.RangeEnd)
	if len(kvs) == 0 {
		return c.Target != pb.Compare_VALUE && holds(c, nil)
	}
	return !slices.ContainsFunc(kvs, func(kv *mvccpb.KeyValue) bool { return !holds(c, kv) })
}

// holds evaluates a compare of one key.
func holds(c *pb.Compare, kv *mvccpb.KeyValue) bool {
	var order int
	switch c.Target {
	case pb.Compare_MOD:
		order = cmp.Compare(kv.GetModRevision(), c.GetModRevision())
	case pb.Compare_CREATE:
		order = cmp.Compare(kv.GetCreateRevision(), c.GetCreateRevision())
	case pb.Compare_VERSION:
		order = cmp.Compare(kv.GetVersion(), c.GetVersion())
	case pb.Compare_LEASE:
		order = cmp.Compare(kv.GetLease(), c.GetLease())
	case pb.Compare_VALUE:
		order = bytes.Compare(kv.GetValue(), c.GetValue())
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return order == 0
	case pb.Compare_NOT_EQUAL:
		return order != 0
	case pb.Compare_GREATER:
		return order > 0
	default:
		return order < 0
	}
}

// between returns the keys of a range in order.
func (s state) between(key, end []byte) []*mvccpb.KeyValue {
	if len(end) == 0 {
		if kv := s.get(string(key)); kv != nil {
			return []*mvccpb.KeyValue{kv}
		}
		return nil
	}
	var kvs []*mvccpb.KeyValue
	for _, kv := range s[s.find(string(key)):] {
		if !inRange(kv.Key, key, end) {
			break
		}
		kvs = append(kvs, kv)
	}
	return kvs
}

func inRange(k, key, end []byte) bool {
	switch {
	case len(end) == 0:
		return bytes.Equal(k, key)
	case len(end) == 1 && end[0] == 0:
		return bytes.Compare(k, key) >= 0
	}
	return bytes.Compare(k, key) >= 0 && bytes.Compare(k, end) < 0
}

// bare returns a response without its headers, which are checked apart.
func bare(m proto.Message) proto.Message {
	m = proto.Clone(m)
	switch r := m.(type) {
	case *pb.PutResponse:
		r.Header = nil
	case *pb.DeleteRangeResponse:
		r.Header = nil
	case *pb.RangeResponse:
		r.Header = nil
	case *pb.LeaseGrantResponse:
		r.Header = nil
	case *pb.LeaseRevokeResponse:
		r.Header = nil
	case *pb.CompactionResponse:
		r.Header = nil
	case *pb.TxnResponse:
		bareTxn(r)
	}
	return m
}

func bareTxn(r *pb.TxnResponse) {
	r.Header = nil
	for _, o := range r.Responses {
		switch is := o.Response.(type) {
		case *pb.ResponseOp_ResponsePut:
			is.ResponsePut.Header = nil
		case *pb.ResponseOp_ResponseDeleteRange:
			is.ResponseDeleteRange.Header = nil
		case *pb.ResponseOp_ResponseRange:
			is.ResponseRange.Header = nil
		case *pb.ResponseOp_ResponseTxn:
			bareTxn(is.ResponseTxn)
		}
	}
}

func isRead(m proto.Message) bool {
	switch r := m.(type) {
	case *pb.RangeRequest, *pb.LeaseTimeToLiveRequest, *pb.LeaseLeasesRequest:
		return true
	case *pb.TxnRequest:
		return apply.ReadOnly(r)
	}
	return false
}
