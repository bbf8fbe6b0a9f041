package apply

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
)

// Range evaluates a read as of revision at, which all of parts must be closed
// through; 0 stands for the newest state that they are closed through, which is the
// newest of all where there is one partition. parts are where the caller took the range
// to lie: if keys of it have moved elsewhere since, the answer is fault.Moved. It takes
// the read locks itself, once, and none while it fetches values that are not in memory.
// The permissions of the user, a credential or 0, are those that apply to the state read.
func (m *Machine) Range(req *pb.RangeRequest, parts placement.Set, at int64, user uint64) (*kvwire.RangeResponse, error) {
	for {
		x := execution{m: m, parts: parts, local: alone(parts), at: at, readOnly: true}
		m.rlock(parts)
		if err := m.shows(m.Placement().Range(req.Key, req.RangeEnd)&^parts == 0); err != nil {
			m.runlock(parts)
			return nil, err
		}
		x.beginRead()
		var sel selection
		err := x.readAs(user)
		if err == nil {
			err = x.permit(req)
		}
		if err == nil {
			sel, err = x.selection(req)
		}
		m.runlock(parts)
		if err != nil {
			return nil, err
		}
		kvs, err := sel.kvs()
		switch {
		case err == nil:
			return assemble(req, found{kvs, sel.count}, x.current()), nil
		case !errors.Is(err, store.ErrMissing) || m.Compacted() <= x.revision(req):
			return nil, x.unread(err)
		case req.Revision > 0:
			return nil, fault.Compacted
		}
		// A compaction that overtook a read of the newest state is no reason to
		// fail it: the read moves on to the compacted revision.
	}
}

// revision is that of the state which a range is evaluated in.
func (x *execution) revision(req *pb.RangeRequest) int64 {
	if req.Revision > 0 {
		return req.Revision
	}
	return x.current()
}

// Get is Range for one key of partition p, as plain as a read can be.
func (m *Machine) Get(key []byte, p int, at int64, user uint64) (kv kvwire.KeyValue, rev int64, err error) {
	s := m.Stores[p]
	s.RLock()
	if a := m.auth.Load(); a.Enabled {
		u, err := a.Authorize(user)
		if err == nil {
			err = u.MayRead(key, nil)
		}
		if err != nil {
			s.RUnlock()
			return kv, 0, err
		}
	}
	if err := m.shows(m.Placement().Partition(key) == p); err != nil {
		s.RUnlock()
		return kv, 0, err
	}
	if at == 0 {
		kv, rev = s.Get(key), max(m.Visible(p), s.Compacted())
		s.RUnlock()
		return kv, rev, nil
	}
	if rev = s.Rev(); at >= rev {
		kv = s.Get(key)
		s.RUnlock()
		return kv, at, nil
	}
	s.RUnlock()
	resp, err := m.Range(&pb.RangeRequest{Key: key}, placement.Of(p), at, user)
	if err != nil {
		return kv, 0, err
	}
	if len(resp.Kvs) > 0 {
		kv = resp.Kvs[0]
	}
	return kv, resp.Header.Revision, nil
}

// ReadTxn evaluates a transaction that doesn't write, as of revision at; see
// Range. All of it sees one state.
func (m *Machine) ReadTxn(req *pb.TxnRequest, parts placement.Set, at int64, user uint64) (*pb.TxnResponse, error) {
	x := execution{m: m, parts: parts, local: alone(parts), at: at, answers: true, readOnly: true}
	m.rlock(parts)
	defer m.runlock(parts)
	if err := m.shows(m.Parts(req)&^parts == 0); err != nil {
		return nil, err
	}
	x.beginRead()
	if err := x.readAs(user); err != nil {
		return nil, err
	}
	return x.txnCommand(req)
}

// readAs finds the user of a read, under the locks: what it reads and what it may read are
// of one moment.
func (x *execution) readAs(user uint64) (err error) {
	x.user, err = x.m.auth.Load().Authorize(user)
	return err
}

// alone is the only partition of a set, or several.
func alone(parts placement.Set) int {
	if parts.Len() == 1 {
		return parts.First()
	}
	return several
}

// beginRead fixes the state that a read sees, under the locks. A revision below the last
// compaction is replaced by the compacted one: all partitions were closed
// through that when the compaction was applied, so it is a state that a read
// of the newest may see as well.
//
// The newest state of a single partition is its store as it is, so that a read of it
// never looks into the past, however many writes there are.
func (x *execution) beginRead() {
	at := x.at
	switch {
	case at > 0:
	case x.local != several:
		x.rev = max(x.m.Visible(x.local), x.compacted()) + 1
		return
	default:
		at = math.MaxInt64
		for p := range x.parts.Each() {
			at = min(at, x.m.Visible(p))
		}
	}
	x.at = max(at, x.compacted())
	x.rev = x.at + 1
}

// compacted is the compaction revision, the same in all partitions.
func (x *execution) compacted() int64 { return x.m.Stores[x.parts.First()].Compacted() }

// selection has the entries of a range, in one partition or in several. Only
// making one needs the locks.
type selection struct {
	first source
	more  []source // behind it, if there are several partitions
	limit int      // of all of them together
	count int
}

type source struct {
	store *store.Store
	found store.Found
}

// selection looks up the range of a request, before filters, order and limit.
func (x *execution) selection(req *pb.RangeRequest) (selection, error) {
	switch {
	case req.Revision > x.current():
		return selection{}, fault.FutureRevision
	case req.CountOnly:
		n, err := x.count(req.Key, req.RangeEnd, req.Revision)
		return selection{count: n}, err
	}
	return x.find(req.Key, req.RangeEnd, req.Revision, fetchLimit(req))
}

// find looks up a range at a revision; 0 or less is the execution's own.
func (x *execution) find(key, end []byte, rev int64, limit int) (sel selection, err error) {
	if rev <= 0 {
		rev = x.at
	}
	if x.local != several {
		sel.first.store = x.m.Stores[x.local]
		sel.first.found, err = sel.first.store.Range(key, end, rev, limit)
		sel.count = sel.first.found.Count
		return sel, err
	}
	sel.limit = limit
	for p := range x.within(key, end).Each() {
		s := x.m.Stores[p]
		f, err := s.Range(key, end, rev, limit)
		if err != nil {
			return sel, err
		}
		sel.count += f.Count
		sel.more = append(sel.more, source{s, f})
	}
	return sel, nil
}

func (x *execution) count(key, end []byte, rev int64) (int, error) {
	if rev <= 0 {
		rev = x.at
	}
	if x.local != several {
		return x.m.Stores[x.local].Count(key, end, rev)
	}
	total := 0
	for p := range x.within(key, end).Each() {
		n, err := x.m.Stores[p].Count(key, end, rev)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// within are the locked partitions that a range can have keys in.
func (x *execution) within(key, end []byte) placement.Set {
	return x.m.Placement().Range(key, end) & x.parts
}

// found is the result of a range, with its values.
type found struct {
	kvs   []kvwire.KeyValue
	count int
}

// look evaluates a range, but for filters, order and limit.
func (x *execution) look(req *pb.RangeRequest) (found, error) {
	sel, err := x.selection(req)
	if err != nil {
		return found{}, err
	}
	return x.fetch(&sel)
}

// fetch gets the values, under the locks: no compaction can overtake it.
func (x *execution) fetch(sel *selection) (found, error) {
	kvs, err := sel.kvs()
	if err != nil {
		return found{}, x.unread(err)
	}
	return found{kvs, sel.count}, nil
}

// present is look for the newest values.
func (x *execution) present(req *pb.RangeRequest) found {
	f, err := x.look(req)
	x.inMemory(err)
	return f
}

// newest returns the keys of a range as they are now.
func (x *execution) newest(key, end []byte, limit int) []kvwire.KeyValue {
	sel, err := x.find(key, end, 0, limit)
	x.inMemory(err)
	kvs, err := sel.kvs()
	x.inMemory(err)
	return kvs
}

// inMemory is for reads of the newest values: they are in memory, so nothing can fail.
func (x *execution) inMemory(err error) {
	if err != nil {
		x.fatal(fmt.Errorf("read the newest values of %v at revision %d: %w", x.parts, x.rev, err))
	}
}

// kvs returns the key-values of the selection, in key order, with all values fetched.
func (sel *selection) kvs() ([]kvwire.KeyValue, error) {
	if sel.first.store != nil {
		err := sel.first.store.Resolve(&sel.first.found)
		return sel.first.found.Kvs, err
	}
	lists := make([][]kvwire.KeyValue, 0, len(sel.more))
	for i := range sel.more {
		src := &sel.more[i]
		if err := src.store.Resolve(&src.found); err != nil {
			return nil, err
		}
		lists = append(lists, src.found.Kvs)
	}
	all := inOrder(lists)
	if sel.limit > 0 && len(all) > sel.limit {
		all = all[:sel.limit]
	}
	return all, nil
}

// inOrder makes one list of several that are in the order of keys and share none.
func inOrder(lists [][]kvwire.KeyValue) []kvwire.KeyValue {
	switch len(lists) {
	case 0:
		return nil
	case 1:
		return lists[0]
	}
	a, b := inOrder(lists[:len(lists)/2]), inOrder(lists[len(lists)/2:])
	all := make([]kvwire.KeyValue, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if bytes.Compare(a[0].Key(), b[0].Key()) < 0 {
			all, a = append(all, a[0]), a[1:]
		} else {
			all, b = append(all, b[0]), b[1:]
		}
	}
	return append(append(all, a...), b...)
}

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
