package apply

import (
	"bytes"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/placement"
	"github.com/stoa-kv/stoa/internal/store"
)

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
