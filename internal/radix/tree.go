package radix

import (
	"slices"
	"strings"
)

// Tree is a map from strings to values. The zero Tree is empty.
type Tree[V any] struct {
	root *Node[V]
	size int
	bits func(V) uint64
}

// Marked is an empty tree whose values have bits, for [Tree.Bits]. bits must give the
// same for a value each time.
func Marked[V any](bits func(V) uint64) Tree[V] { return Tree[V]{bits: bits} }

// Node is a place in a tree: below it are all keys that begin in the same way.
type Node[V any] struct {
	entry *entry[V] // of the key that ends here; nil if none does
	edges []edge[V] // ordered by their first byte
	bits  uint64    // of all values here and below
}

type entry[V any] struct {
	key   string
	value V
}

type edge[V any] struct {
	first byte // of label
	label string
	to    *Node[V]
}

// Len is the number of keys.
func (t Tree[V]) Len() int { return t.size }

// Get returns the value of a key.
func (t Tree[V]) Get(key []byte) (v V, ok bool) {
	n := t.root
	for n != nil && len(key) > 0 {
		n, key = n.follow(key)
	}
	if n == nil || n.entry == nil {
		return v, false
	}
	return n.entry.value, true
}

// follow returns the child along the edge that key continues with, nil if there is none,
// and the rest of the key behind that edge.
func (n *Node[V]) follow(key []byte) (*Node[V], []byte) {
	i, ok := n.find(key[0])
	if !ok {
		return nil, nil
	}
	e := &n.edges[i]
	if len(key) < len(e.label) || string(key[:len(e.label)]) != e.label {
		return nil, nil
	}
	return e.to, key[len(e.label):]
}

// few is how many edges are looked through one by one.
const few = 8

// find is the place of the edge that begins with a byte.
func (n *Node[V]) find(first byte) (int, bool) {
	if len(n.edges) > few {
		return slices.BinarySearchFunc(n.edges, first, func(e edge[V], b byte) int { return int(e.first) - int(b) })
	}
	for i := range n.edges {
		if c := n.edges[i].first; c >= first {
			return i, c == first
		}
	}
	return len(n.edges), false
}

// With is the tree with a key added, or with another value of it.
func (t Tree[V]) With(key string, v V) Tree[V] {
	root := t.root
	if root == nil {
		root = &Node[V]{}
	}
	next, added := t.with(root, key, &entry[V]{key, v})
	t.root = next
	if added {
		t.size++
	}
	return t
}

// with adds an entry below n, where its key goes on with rest.
func (t *Tree[V]) with(n *Node[V], rest string, e *entry[V]) (_ *Node[V], added bool) {
	if rest == "" {
		return t.made(e, n.edges), n.entry == nil
	}
	i, ok := n.find(rest[0])
	if !ok {
		edges := slices.Insert(slices.Clip(n.edges), i, newEdge(rest, t.made(e, nil)))
		return t.made(n.entry, edges), true
	}
	edges := slices.Clone(n.edges)
	old := edges[i]
	switch c := common(old.label, rest); {
	case c == len(old.label):
		edges[i].to, added = t.with(old.to, rest[c:], e)
	default: // the way parts in the midst of the label
		added = true
		fork := t.made(nil, []edge[V]{newEdge(old.label[c:], old.to)})
		fork, _ = t.with(fork, rest[c:], e)
		edges[i] = newEdge(rest[:c], fork)
	}
	return t.made(n.entry, edges), added
}

// made is a new node.
func (t *Tree[V]) made(e *entry[V], edges []edge[V]) *Node[V] {
	n := &Node[V]{entry: e, edges: edges}
	if t.bits == nil {
		return n
	}
	if e != nil {
		n.bits = t.bits(e.value)
	}
	for i := range edges {
		n.bits |= edges[i].to.bits
	}
	return n
}

func newEdge[V any](label string, to *Node[V]) edge[V] {
	return edge[V]{first: label[0], label: strings.Clone(label), to: to}
}

// common is the length of the common prefix of two strings.
func common(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// Without is the tree without a key.
func (t Tree[V]) Without(key string) Tree[V] {
	if t.root == nil {
		return t
	}
	root, removed := t.without(t.root, key)
	if !removed {
		return t
	}
	if t.size--; root == nil {
		root = &Node[V]{}
	}
	t.root = root
	return t
}

// without removes a key that goes on with rest below n. A node that is left without key
// and edges is nil.
func (t *Tree[V]) without(n *Node[V], rest string) (_ *Node[V], removed bool) {
	if rest == "" {
		if n.entry == nil {
			return n, false
		}
		if len(n.edges) == 0 {
			return nil, true
		}
		return t.made(nil, n.edges), true
	}
	i, ok := n.find(rest[0])
	if !ok || !strings.HasPrefix(rest, n.edges[i].label) {
		return n, false
	}
	below, removed := t.without(n.edges[i].to, rest[len(n.edges[i].label):])
	if !removed {
		return n, false
	}
	edges := slices.Clone(n.edges)
	switch {
	case below == nil:
		edges = slices.Delete(edges, i, i+1)
	case below.entry == nil && len(below.edges) == 1: // it isn't a fork any more
		on := below.edges[0]
		edges[i] = newEdge(edges[i].label+on.label, on.to)
	default:
		edges[i].to = below
	}
	if len(edges) == 0 && n.entry == nil {
		return nil, true
	}
	return t.made(n.entry, edges), true
}
