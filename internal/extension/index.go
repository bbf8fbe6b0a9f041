package extension

import (
	"slices"

	"github.com/stoa-kv/stoa/internal/radix"
)

// index finds the extensions whose patterns cover a key: its entries are the patterns,
// each with the extensions that name it, the last registered first.
type index struct{ radix.Tree[[]*Extension] }

// add notes a pattern of an extension; one that is there already stays.
func (x *index) add(p Pattern, e *Extension) {
	list, _ := x.Get([]byte(p))
	at := slices.IndexFunc(list, func(o *Extension) bool { return o.earlier(e) || o == e })
	switch {
	case at < 0:
		at = len(list)
	case list[at] == e:
		return
	}
	next := make([]*Extension, 0, len(list)+1)
	next = append(append(append(next, list[:at]...), e), list[at:]...)
	x.Tree = x.With(string(p), next)
}

func (x *index) remove(p Pattern, e *Extension) {
	list, _ := x.Get([]byte(p))
	at := slices.Index(list, e)
	switch {
	case at < 0:
	case len(list) == 1:
		x.Tree = x.Without(string(p))
	default:
		next := append(make([]*Extension, 0, len(list)-1), list[:at]...)
		x.Tree = x.With(string(p), append(next, list[at+1:]...))
	}
}

// covers tells whether any pattern covers a key.
func (x index) covers(key []byte) bool {
	for p := range x.Above(key) {
		if len(p) == len(key) || Pattern(p).IsPrefix() {
			return true
		}
	}
	return false
}

// find returns the extensions with a pattern that covers a key, or all keys of a range,
// the last registered first. Where one pattern does, its list is not copied.
func (x index) find(key, end []byte) (found []*Extension) {
	for p, list := range x.Above(key) {
		switch {
		case len(end) == 0 && (len(p) == len(key) || Pattern(p).IsPrefix()), len(end) > 0 && Pattern(p).holds(key, end):
			found = merge(found, list)
		}
	}
	return found
}

// merge is the union of two lists in the same order.
func merge(a, b []*Extension) []*Extension {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	list := make([]*Extension, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] == b[0]:
			list, a, b = append(list, a[0]), a[1:], b[1:]
		case b[0].earlier(a[0]):
			list, a = append(list, a[0]), a[1:]
		default:
			list, b = append(list, b[0]), b[1:]
		}
	}
	return append(append(list, a...), b...)
}

// meeting yields the extensions with a pattern that covers any key of a range.
func (x index) meeting(key, end []byte, yield func(*Extension) bool) {
	each := func(list []*Extension) bool {
		for _, e := range list {
			if !yield(e) {
				return false
			}
		}
		return true
	}
	for p, list := range x.Above(key) { // also the range's first key itself
		if (len(p) == len(key) || Pattern(p).IsPrefix()) && !each(list) {
			return
		}
	}
	switch {
	case len(end) == 0:
		return
	case len(end) == 1 && end[0] == 0:
		end = nil
	}
	for p, list := range x.Range(key, end) {
		if p != string(key) && !each(list) {
			return
		}
	}
}
