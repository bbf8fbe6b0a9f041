package radix

import "iter"

// Value is the value of the key that ends at the node, if one does.
func (n *Node[V]) Value() (v V, ok bool) {
	if n.entry == nil {
		return v, false
	}
	return n.entry.value, true
}

// Next are the nodes one edge on, in order.
func (n *Node[V]) Next() iter.Seq[*Node[V]] {
	return func(yield func(*Node[V]) bool) {
		for i := range n.edges {
			if !yield(n.edges[i].to) {
				return
			}
		}
	}
}

// Below is the node under which exactly the keys lie that begin with prefix, nil if
// there are none.
func (t Tree[V]) Below(prefix []byte) *Node[V] {
	n := t.root
	for n != nil && len(prefix) > 0 {
		i, ok := n.find(prefix[0])
		if !ok {
			return nil
		}
		label := n.edges[i].label
		c := min(len(label), len(prefix))
		if string(prefix[:c]) != label[:c] {
			return nil
		}
		n, prefix = n.edges[i].to, prefix[c:]
	}
	if n == nil || n.entry == nil && len(n.edges) == 0 {
		return nil
	}
	return n
}

// Above yields the keys that key begins with, and itself, the shortest first.
func (t Tree[V]) Above(key []byte) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for n := t.root; n != nil; {
			if n.entry != nil && !yield(n.entry.key, n.entry.value) || len(key) == 0 {
				return
			}
			n, key = n.follow(key)
		}
	}
}

// All yields keys and values in order.
func (t Tree[V]) All() iter.Seq2[string, V] { return t.Range(nil, nil) }

// Last returns the value of the last key.
func (t Tree[V]) Last() (v V, ok bool) {
	n := t.root
	for n != nil && len(n.edges) > 0 {
		n = n.edges[len(n.edges)-1].to
	}
	if n == nil {
		return v, false
	}
	return n.Value()
}

// Range yields the keys from one on up to, without, another in order. nil stands for
// the end.
func (t Tree[V]) Range(from, to []byte) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		if t.root != nil {
			t.root.walk(bounds{from: from, to: to, open: to == nil}, func(e *entry[V]) bool { return yield(e.key, e.value) })
		}
	}
}

// bounds are those of a range as they are seen from a node: the part of the keys
// behind the node, where the keys that lie there begin like the bound; nil, or open,
// where all of them are within.
type bounds struct {
	from, to []byte
	open     bool
}

// along are the bounds behind an edge; ok is false if nothing there is within. last says
// that nothing behind the edges after this one is, either.
func (b bounds) along(label string) (next bounds, ok, last bool) {
	next = bounds{open: true}
	if len(b.from) > 0 {
		c := min(len(label), len(b.from))
		switch l, f := label[:c], string(b.from[:c]); {
		case l < f:
			return next, false, false
		case l == f:
			next.from = b.from[c:]
		}
	}
	if !b.open {
		c := min(len(label), len(b.to))
		switch l, t := label[:c], string(b.to[:c]); {
		case l > t || l == t && c == len(b.to): // the bound itself isn't within
			return next, false, true
		case l == t:
			next.to, next.open = b.to[c:], false
		}
	}
	return next, true, false
}

// walk visits the entries within bounds in order, and returns false if visit has.
func (n *Node[V]) walk(b bounds, visit func(*entry[V]) bool) bool {
	if n.entry != nil && len(b.from) == 0 && (b.open || len(b.to) > 0) && !visit(n.entry) {
		return false
	}
	for i := range n.edges {
		next, ok, last := b.along(n.edges[i].label)
		if last {
			break
		}
		if ok && !n.edges[i].to.walk(next, visit) {
			return false
		}
	}
	return true
}

// Bits are the bits of all values of a range's keys together; see [Marked]. It takes no
// longer for many keys than for few.
func (t Tree[V]) Bits(from, to []byte) uint64 {
	if t.root == nil {
		return 0
	}
	return t.marks(t.root, bounds{from: from, to: to, open: to == nil})
}

func (t *Tree[V]) marks(n *Node[V], b bounds) (bits uint64) {
	if len(b.from) == 0 && b.open {
		return n.bits
	}
	if n.entry != nil && len(b.from) == 0 && (b.open || len(b.to) > 0) {
		bits = t.bits(n.entry.value)
	}
	for i := range n.edges {
		next, ok, last := b.along(n.edges[i].label)
		if last {
			break
		}
		if ok {
			bits |= t.marks(n.edges[i].to, next)
		}
	}
	return bits
}

// Diff yields the keys that only one of two trees has, and those whose value was set
// again in between: in order, and without visiting the nodes that the trees share.
func Diff[V any](a, b Tree[V]) iter.Seq[string] {
	return func(yield func(string) bool) {
		none := &Node[V]{}
		from, to := a.root, b.root
		if from == nil {
			from = none
		}
		if to == nil {
			to = none
		}
		diff(from, to, yield)
	}
}

func diff[V any](a, b *Node[V], yield func(string) bool) bool {
	if a == b {
		return true
	}
	if a.entry != b.entry {
		e := a.entry
		if e == nil {
			e = b.entry
		}
		if !yield(e.key) {
			return false
		}
	}
	x, y := a.edges, b.edges
	for len(x) > 0 || len(y) > 0 {
		switch {
		case len(y) == 0 || len(x) > 0 && x[0].first < y[0].first:
			if !diff(x[0].to, &Node[V]{}, yield) {
				return false
			}
			x = x[1:]
		case len(x) == 0 || y[0].first < x[0].first:
			if !diff(&Node[V]{}, y[0].to, yield) {
				return false
			}
			y = y[1:]
		default:
			if !diffEdges(x[0], y[0], yield) {
				return false
			}
			x, y = x[1:], y[1:]
		}
	}
	return true
}

// diffEdges compares the subtrees behind two edges that begin with the same byte. Where
// one is longer, or they part, nodes are put in between.
func diffEdges[V any](a, b edge[V], yield func(string) bool) bool {
	c := common(a.label, b.label)
	return diff(a.behind(c), b.behind(c), yield)
}

// behind is the node after the first c bytes of the edge.
func (e edge[V]) behind(c int) *Node[V] {
	if c == len(e.label) {
		return e.to
	}
	return &Node[V]{edges: []edge[V]{{first: e.label[c], label: e.label[c:], to: e.to}}}
}
