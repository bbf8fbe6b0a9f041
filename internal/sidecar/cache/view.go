package cache

import (
	"bytes"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/kvwire"
	"github.com/stoa-kv/stoa/internal/radix"
)

// A View is the keys of a prefix at one revision.
type View struct {
	header *pb.ResponseHeader
	tree   radix.Tree[kvwire.KeyValue]
}

// Revision is the one whose keys a view has.
func (v *View) Revision() int64 { return v.header.Revision }

// Cluster is the id of the cluster whose keys they are.
func (v *View) Cluster() uint64 { return v.header.ClusterId }

// Len is the number of keys.
func (v *View) Len() int { return v.tree.Len() }

// Answerable reports whether a view of the keys from key on up to end can answer a range: those at another
// revision, sorted or filtered by what isn't the key, beyond the view, or that a member would
// refuse, are for a member.
func Answerable(r *pb.RangeRequest, key, end []byte) bool {
	switch {
	case r.Revision != 0 || r.Limit < 0,
		r.MinModRevision != 0, r.MaxModRevision != 0, r.MinCreateRevision != 0, r.MaxCreateRevision != 0:
		return false
	case r.SortTarget != pb.RangeRequest_KEY, r.SortOrder < pb.RangeRequest_NONE, r.SortOrder > pb.RangeRequest_DESCEND:
		return false
	case len(r.Key) == 0 || bytes.Compare(r.Key, key) < 0:
		return false
	case len(r.RangeEnd) == 0: // one key
		return open(end) || bytes.Compare(r.Key, end) < 0
	case open(r.RangeEnd):
		return open(end)
	}
	return bytes.Compare(r.Key, r.RangeEnd) < 0 && (open(end) || bytes.Compare(r.RangeEnd, end) <= 0)
}

// open: a range with this end has none.
func open(end []byte) bool { return len(end) == 1 && end[0] == 0 }

// Answer is the encoded response to an Answerable range.
func (v *View) Answer(r *pb.RangeRequest) []byte {
	a := kvwire.RangeResponse{Header: v.header}
	if len(r.RangeEnd) == 0 {
		if kv, ok := v.tree.Get(r.Key); ok {
			a.Count, a.Kvs = 1, []kvwire.KeyValue{kv}
		}
	} else {
		a.Kvs, a.Count = v.scan(r)
	}
	if r.SortOrder == pb.RangeRequest_DESCEND {
		slices.Reverse(a.Kvs)
	}
	if r.Limit > 0 && int64(len(a.Kvs)) > r.Limit {
		a.Kvs, a.More = a.Kvs[:r.Limit], true
	}
	if r.CountOnly {
		a.Kvs, a.More = nil, false
	}
	if r.KeysOnly {
		for i, kv := range a.Kvs {
			a.Kvs[i] = kv.WithoutValue()
		}
	}
	return a.AppendTo(make([]byte, 0, a.Size()))
}

// scan returns what may be needed of a range's keys, in ascending order, and how many there are.
func (v *View) scan(r *pb.RangeRequest) (kvs []kvwire.KeyValue, count int64) {
	end := r.RangeEnd
	if open(end) {
		end = nil
	}
	all := r.SortOrder == pb.RangeRequest_DESCEND || r.Limit == 0
	for _, kv := range v.tree.Range(r.Key, end) {
		if count++; !r.CountOnly && (all || count <= r.Limit+1) {
			kvs = append(kvs, kv)
		}
	}
	return kvs, count
}
