package extension

import (
	"bytes"
	"slices"

	"github.com/stoa-kv/stoa/internal/kvwire"
)

// State is the keys as a call finds them. What it returns is shared and not to be
// written to.
type State interface {
	// Get returns a key's present value, or none.
	Get(key []byte) kvwire.KeyValue
	// Range returns up to limit of the keys in [key, end), in order.
	Range(key, end []byte, limit int) []kvwire.KeyValue
	// Count is the number of keys in [key, end).
	Count(key, end []byte) int
	// HasLease tells whether a lease exists.
	HasLease(id int64) bool
}

// Write is one key to be put or deleted.
type Write struct {
	Key, Value []byte
	Lease      int64
	Delete     bool
}

// overlay is a state with the writes of a call on top, of each key the last.
type overlay struct {
	base    State
	rev     int64 // at which the writes will take effect
	writes  []*pending
	byKey   map[string]*pending
	written int // bytes
}

type pending struct {
	Write
	kv kvwire.KeyValue // as the call reads it back; none if deleted
}

func (o *overlay) get(key []byte) kvwire.KeyValue {
	if w := o.byKey[string(key)]; w != nil {
		return w.kv
	}
	return o.base.Get(key)
}

func (o *overlay) put(key, value []byte, lease int64) {
	fields := kvwire.Fields{CreateRevision: o.rev, ModRevision: o.rev, Version: 1, Lease: lease}
	// The key is written once at this revision, whatever the call does to it on
	// the way there.
	if old := o.base.Get(key); old.Exists() {
		fields.CreateRevision, fields.Version = old.CreateRevision(), old.Version()+1
	}
	w := o.pending(key)
	w.Write = Write{Key: key, Value: value, Lease: lease}
	w.kv = kvwire.Make(key, value, fields)
}

func (o *overlay) delete(key []byte) {
	w := o.pending(key)
	w.Write = Write{Key: key, Delete: true}
	w.kv = kvwire.KeyValue{}
}

func (o *overlay) pending(key []byte) *pending {
	if w := o.byKey[string(key)]; w != nil {
		return w
	}
	if o.byKey == nil {
		o.byKey = map[string]*pending{}
	}
	w := &pending{}
	o.byKey[string(key)] = w
	o.writes = append(o.writes, w)
	return w
}

// scan is base's Range with the writes on top.
func (o *overlay) scan(key, end []byte, limit int) []kvwire.KeyValue {
	if len(o.writes) == 0 {
		return o.base.Range(key, end, limit)
	}
	list := slices.Clone(o.base.Range(key, end, limit+len(o.writes)))
	list = slices.DeleteFunc(list, func(kv kvwire.KeyValue) bool { return o.byKey[string(kv.Key())] != nil })
	for _, w := range o.writes {
		if w.kv.Exists() && bytes.Compare(w.Key, key) >= 0 && bytes.Compare(w.Key, end) < 0 {
			list = append(list, w.kv)
		}
	}
	slices.SortFunc(list, func(a, b kvwire.KeyValue) int { return bytes.Compare(a.Key(), b.Key()) })
	return list[:min(limit, len(list))]
}

func (o *overlay) count(key, end []byte) int {
	n := o.base.Count(key, end)
	for _, w := range o.writes {
		if bytes.Compare(w.Key, key) < 0 || bytes.Compare(w.Key, end) >= 0 {
			continue
		}
		if o.base.Get(w.Key).Exists() {
			n--
		}
		if w.kv.Exists() {
			n++
		}
	}
	return n
}

// result returns the writes, in the order in which their keys were first written,
// without those that come to nothing.
func (o *overlay) result() []Write {
	var list []Write
	for _, w := range o.writes {
		if w.Delete && !o.base.Get(w.Key).Exists() {
			continue
		}
		list = append(list, w.Write)
	}
	return list
}
