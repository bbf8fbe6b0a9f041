package auth

import (
	"slices"
	"sort"
	"strings"
)

// span is the keys in [from, to); an empty to stands for the end of all keys.
type span struct{ from, to string }

// spanOf is a key, or a range, as etcd's requests write them.
func spanOf(key, end []byte) span {
	switch {
	case len(end) == 0:
		return span{string(key), string(key) + "\x00"}
	case len(end) == 1 && end[0] == 0:
		return span{string(key), ""}
	}
	return span{string(key), string(end)}
}

// reaches reports whether the span goes at least as far as another's end.
func (s span) reaches(to string) bool { return s.to == "" || to != "" && s.to >= to }

// spans are in order, and between two of them there are keys in neither.
type spans []span

func merged(list []span) spans {
	slices.SortFunc(list, func(a, b span) int { return strings.Compare(a.from, b.from) })
	var all spans
	for _, s := range list {
		last := len(all) - 1
		switch {
		case last < 0 || all[last].to != "" && all[last].to < s.from:
			all = append(all, s)
		case !all[last].reaches(s.to):
			all[last].to = s.to
		}
	}
	return all
}

// has reports whether a key is in the spans. It doesn't allocate.
func (l spans) has(key []byte) bool {
	i := l.last(key)
	return i >= 0 && (l[i].to == "" || string(key) < l[i].to)
}

// covers reports whether all keys of a range are in the spans. Of a range that ends before
// it begins, all keys between the two have to be.
func (l spans) covers(key, end []byte) bool {
	if len(end) == 0 {
		return l.has(key)
	}
	to := end
	if len(end) == 1 && end[0] == 0 {
		to = nil
	} else if string(end) < string(key) {
		key, to = end, key
	}
	i := l.last(key)
	return i >= 0 && l[i].reaches(string(to))
}

// touch reports whether any key of a range is in the spans.
func (l spans) touch(key, end []byte) bool {
	if len(end) == 0 || l.has(key) {
		return l.has(key)
	}
	next := l.last(key) + 1
	return next < len(l) && (len(end) == 1 && end[0] == 0 || l[next].from < string(end))
}

// last is the last span that begins at or before a key, -1 for none.
func (l spans) last(key []byte) int {
	return sort.Search(len(l), func(i int) bool { return l[i].from > string(key) }) - 1
}
