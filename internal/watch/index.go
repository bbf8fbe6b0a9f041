package watch

// index finds the watchers that cover a key: those of a single key by a map,
// those of a range in a tree of intervals. The order in which it yields them
// depends only on what was added and removed, never on a map's order.
type index struct {
	keys   map[string][]*watcher
	ranges tree
	all    []*watcher
}

func newIndex() index { return index{keys: map[string][]*watcher{}} }

func (x *index) len() int { return len(x.all) }

func (x *index) add(w *watcher) {
	w.place = len(x.all)
	x.all = append(x.all, w)
	if !w.single() {
		n := x.ranges.insert(w.interval())
		w.slot = len(n.members)
		n.members = append(n.members, w)
		return
	}
	same := x.keys[string(w.key)]
	w.slot = len(same)
	x.keys[string(w.key)] = append(same, w)
}

func (x *index) remove(w *watcher) {
	last := len(x.all) - 1
	x.all[w.place] = x.all[last]
	x.all[w.place].place = w.place
	x.all[last] = nil
	x.all = x.all[:last]

	if !w.single() {
		iv := w.interval()
		n := x.ranges.find(iv)
		if n.members = without(n.members, w.slot); len(n.members) == 0 {
			x.ranges.delete(iv)
		}
		return
	}
	if same := without(x.keys[string(w.key)], w.slot); len(same) == 0 {
		delete(x.keys, string(w.key))
	} else {
		x.keys[string(w.key)] = same
	}
}

// without fills the gap with the last member.
func without(ws []*watcher, i int) []*watcher {
	last := len(ws) - 1
	ws[i] = ws[last]
	ws[i].slot = i
	ws[last] = nil
	return ws[:last]
}

// match appends the watchers that cover a key.
func (x *index) match(to []*watcher, key []byte) []*watcher {
	to = append(to, x.keys[string(key)]...)
	return x.ranges.root.stab(to, key)
}

// interval is [start, end), or from start on if unbounded.
type interval struct {
	start, end string
	unbounded  bool
}

func (w *watcher) interval() interval {
	return interval{string(w.key), string(w.end), w.toEnd}
}

func (a interval) compare(b interval) int {
	switch {
	case a.start != b.start:
		if a.start < b.start {
			return -1
		}
		return 1
	case a.unbounded != b.unbounded:
		if b.unbounded {
			return -1
		}
		return 1
	case a.end < b.end:
		return -1
	case a.end > b.end:
		return 1
	}
	return 0
}

// tree is a treap over intervals in which every node knows the furthest end
// below it, so that a search visits only subtrees that reach its key. The
// priorities come from a fixed sequence: the same history of calls makes the
// same tree.
type tree struct {
	root *node
	seed uint64
}

type node struct {
	interval
	members     []*watcher
	left, right *node
	priority    uint64
	far         string // furthest end in this subtree
	farAll      bool   // ... is unbounded
}

func (n *node) measure() {
	n.far, n.farAll = n.end, n.unbounded
	for _, c := range [2]*node{n.left, n.right} {
		if c == nil {
			continue
		}
		n.farAll = n.farAll || c.farAll
		n.far = max(n.far, c.far)
	}
}

// insert finds or makes the node of an interval.
func (t *tree) insert(iv interval) *node {
	if n := t.find(iv); n != nil {
		return n
	}
	t.seed = t.seed*6364136223846793005 + 1442695040888963407
	n := &node{interval: iv, priority: t.seed ^ t.seed>>31}
	t.root = t.root.insert(n)
	return n
}

func (t *tree) find(iv interval) *node {
	n := t.root
	for n != nil {
		switch c := iv.compare(n.interval); {
		case c < 0:
			n = n.left
		case c > 0:
			n = n.right
		default:
			return n
		}
	}
	return nil
}

func (t *tree) delete(iv interval) { t.root = t.root.delete(iv) }

func (n *node) insert(m *node) *node {
	if n == nil {
		m.measure()
		return m
	}
	if m.priority > n.priority {
		m.left, m.right = n.split(m.interval)
		m.measure()
		return m
	}
	if m.interval.compare(n.interval) < 0 {
		n.left = n.left.insert(m)
	} else {
		n.right = n.right.insert(m)
	}
	n.measure()
	return n
}

func (n *node) split(iv interval) (below, above *node) {
	if n == nil {
		return nil, nil
	}
	if n.interval.compare(iv) < 0 {
		n.right, above = n.right.split(iv)
		below = n
	} else {
		below, n.left = n.left.split(iv)
		above = n
	}
	n.measure()
	return below, above
}

func (n *node) delete(iv interval) *node {
	if n == nil {
		return nil
	}
	switch c := iv.compare(n.interval); {
	case c < 0:
		n.left = n.left.delete(iv)
	case c > 0:
		n.right = n.right.delete(iv)
	default:
		return concat(n.left, n.right)
	}
	n.measure()
	return n
}

func concat(a, b *node) *node {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.priority > b.priority:
		a.right = concat(a.right, b)
		a.measure()
		return a
	default:
		b.left = concat(a, b.left)
		b.measure()
		return b
	}
}

// stab appends the members of all intervals that hold a key.
func (n *node) stab(to []*watcher, key []byte) []*watcher {
	if n == nil || !n.farAll && n.far <= string(key) {
		return to
	}
	to = n.left.stab(to, key)
	if string(key) < n.start {
		return to
	}
	if n.unbounded || string(key) < n.end {
		to = append(to, n.members...)
	}
	return n.right.stab(to, key)
}
