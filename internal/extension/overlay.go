package extension

import (
	"bytes"
	"slices"

	"github.com/stoa-kv/stoa/internal/kvwire"
)

// State is the keys as a call finds them. Its results are shared and must not be
// written to.
type State interface {
	// Get returns a key's present value, or none.
	Get(key []byte) kvwire.KeyValue
	// Range returns up to limit of the keys in [key, end), in order.
	Range(key, end []byte, limit int) []kvwire.KeyValue
	// Count is the number of keys in [key, end).
	Count(key, end []byte) int
	// HasLease tells whether a lease exists that the call may attach the key to.
	HasLease(key []byte, id int64) bool
	// Permits tells whether the call's user may read or write a range, which is written as
	// in etcd's requests.
	Permits(key, end []byte, write bool) bool
}

// Write is one key to be put or deleted.
type Write struct {
	Key    []byte
	Delete bool
	Kv     kvwire.KeyValue // to be put, with the numbers that it will have in the store
}

// overlay is a state with the writes of a call on top, of each key the last.
type overlay struct {
	base     State
	rev      int64 // at which the writes will take effect
	writes   []*pending
	byKey    map[string]*pending
	written  int        // bytes
	keyBytes int        // of all that are in writes
	ordered  []*pending // the writes that were there at the last scan, by key
}

type pending struct {
	Write
	stored kvwire.KeyValue // as it was before the call
}

func (o *overlay) get(key []byte) kvwire.KeyValue {
	if w := o.byKey[string(key)]; w != nil {
		return w.Kv
	}
	return o.base.Get(key)
}

func (o *overlay) put(key, value []byte, lease int64) {
	w := o.pending(key)
	fields := kvwire.Fields{CreateRevision: o.rev, ModRevision: o.rev, Version: 1, Lease: lease}
	// The key is written once at this revision, however many times the call writes
	// it.
	if w.stored.Exists() {
		fields.CreateRevision, fields.Version = w.stored.CreateRevision(), w.stored.Version()+1
	}
	kv := kvwire.Make(key, value, fields)
	w.Write = Write{Key: kv.Key(), Kv: kv}
}

func (o *overlay) delete(key []byte) {
	w := o.pending(key)
	w.Write = Write{Key: key, Delete: true}
}

func (o *overlay) pending(key []byte) *pending {
	if w := o.byKey[string(key)]; w != nil {
		return w
	}
	if o.byKey == nil {
		o.byKey = map[string]*pending{}
	}
	w := &pending{stored: o.base.Get(key)}
	o.byKey[string(key)] = w
	o.writes = append(o.writes, w)
	o.keyBytes += len(key)
	return w
}

// order brings the writes since the last scan among the ordered ones.
func (o *overlay) order() {
	n := len(o.ordered)
	if n == len(o.writes) {
		return
	}
	recent := slices.Clone(o.writes[n:])
	slices.SortFunc(recent, func(a, b *pending) int { return bytes.Compare(a.Key, b.Key) })
	merged := make([]*pending, 0, len(o.writes))
	for _, w := range o.ordered {
		for len(recent) > 0 && bytes.Compare(recent[0].Key, w.Key) < 0 {
			merged, recent = append(merged, recent[0]), recent[1:]
		}
		merged = append(merged, w)
	}
	o.ordered = append(merged, recent...)
}

// within returns the writes in [key, end). They must be in order.
func (o *overlay) within(key, end []byte) []*pending {
	place := func(key []byte) int {
		i, _ := slices.BinarySearchFunc(o.ordered, key, func(w *pending, key []byte) int { return bytes.Compare(w.Key, key) })
		return i
	}
	return o.ordered[place(key):place(end)]
}

// scan is base's Range with the writes in it on top.
func (o *overlay) scan(key, end []byte, limit int, written []*pending) []kvwire.KeyValue {
	if len(written) == 0 {
		return o.base.Range(key, end, limit)
	}
	var list []kvwire.KeyValue
	for chunk := limit; ; chunk = min(2*chunk, limit-len(list)+len(written)) {
		stored := o.base.Range(key, end, chunk)
		list = slices.Grow(list, len(stored)+len(written))
		for _, kv := range stored {
			for len(written) > 0 && bytes.Compare(written[0].Key, kv.Key()) < 0 {
				list, written = appendLive(list, written[0]), written[1:]
			}
			if len(written) > 0 && bytes.Equal(written[0].Key, kv.Key()) {
				list, written = appendLive(list, written[0]), written[1:]
			} else {
				list = append(list, kv)
			}
		}
		if len(stored) < chunk {
			for _, w := range written {
				list = appendLive(list, w)
			}
			return list[:min(limit, len(list))]
		}
		if len(list) >= limit {
			return list[:limit]
		}
		key = append(bytes.Clone(stored[chunk-1].Key()), 0)
	}
}

func appendLive(list []kvwire.KeyValue, w *pending) []kvwire.KeyValue {
	if w.Kv.Exists() {
		list = append(list, w.Kv)
	}
	return list
}

func (o *overlay) count(key, end []byte, written []*pending) int {
	n := o.base.Count(key, end)
	for _, w := range written {
		if w.stored.Exists() {
			n--
		}
		if w.Kv.Exists() {
			n++
		}
	}
	return n
}

// result returns the writes, in the order in which their keys were first written,
// without those that have no effect.
func (o *overlay) result() []Write {
	if len(o.writes) == 0 {
		return nil
	}
	list := make([]Write, 0, len(o.writes))
	for _, w := range o.writes {
		if w.Delete && !w.stored.Exists() {
			continue
		}
		list = append(list, w.Write)
	}
	return list
}
