package apply

import (
	"errors"
	"math"

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
