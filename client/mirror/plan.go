package mirror

// Limits bound a transaction of the target.
type Limits struct {
	Ops   int // operations, without the mark's
	Bytes int // of keys and values; a single larger operation has a transaction of its own
}

// step is one transaction of the target, and the place at which the target is behind it.
type step struct {
	ops      []Op
	phase    Phase
	revision int64
}

// plan makes steps of changes of whole revisions, in order. A step has as many revisions as
// fit; a revision that doesn't fit has several steps, all but the last of which are Partial.
//
// With every, no change is dropped because the step has a later one of its key, and the
// deletions of a step are of its revision: so the target's own events tell each change of
// the source, and the revision of those that have no value to tell it.
func plan(changes []Change, l Limits, every bool) (steps []step) {
	cur, revision := &Bundle{}, int64(0)
	flush := func() {
		if len(cur.ops) > 0 {
			steps = append(steps, step{cur.ops, At, revision})
			cur = &Bundle{}
		}
	}
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && changes[n].Revision == changes[0].Revision {
			n++
		}
		one, at := bundle(changes[:n]), changes[0].Revision
		changes = changes[n:]
		if !cur.Fits(one, l) || every && !cur.apart(one) {
			flush()
		}
		if !cur.Fits(one, l) {
			steps = append(steps, split(one.ops, at, l)...)
			continue
		}
		cur.Merge(one)
		revision = at
	}
	flush()
	return steps
}

// Bundle is the last change of each of some keys, for one transaction. The zero Bundle is empty.
type Bundle struct {
	ops   []Op
	at    map[string]int // index in ops
	bytes int
}

func bundle(changes []Change) *Bundle {
	b := &Bundle{}
	for _, c := range changes {
		b.Put(Op{Key: c.Key, Value: c.Value, Delete: c.Deleted})
	}
	return b
}

// Put replaces an earlier change of the key: a transaction can't put a key twice.
func (b *Bundle) Put(op Op) {
	if op.Delete {
		op.Value = nil
	}
	if i, ok := b.at[string(op.Key)]; ok {
		b.bytes += op.size() - b.ops[i].size()
		b.ops[i] = op
		return
	}
	if b.at == nil {
		b.at = map[string]int{}
	}
	b.at[string(op.Key)] = len(b.ops)
	b.ops = append(b.ops, op)
	b.bytes += op.size()
}

// Ops are the changes, one of each key.
func (b *Bundle) Ops() []Op { return b.ops }

// Fits reports whether both together are one transaction, as if they had no key in common.
func (b *Bundle) Fits(o *Bundle, l Limits) bool {
	n := len(b.ops) + len(o.ops)
	return n <= 1 || n <= l.Ops && b.bytes+o.bytes <= l.Bytes
}

// Merge adds later changes.
func (b *Bundle) Merge(o *Bundle) {
	for _, op := range o.ops {
		b.Put(op)
	}
}

// apart reports whether no change of the bundle is lost, or gets another revision, when a
// later revision joins it.
func (b *Bundle) apart(o *Bundle) bool {
	for _, op := range b.ops {
		if _, both := o.at[string(op.Key)]; both || op.Delete {
			return false
		}
	}
	return true
}

// split makes several steps of one revision.
func split(ops []Op, revision int64, l Limits) (steps []step) {
	for _, ops := range chunks(ops, l) {
		steps = append(steps, step{ops, Partial, revision})
	}
	steps[len(steps)-1].phase = At
	return steps
}

// chunks cuts operations into what one transaction may have each.
func chunks(ops []Op, l Limits) (list [][]Op) {
	from, bytes := 0, 0
	for i, op := range ops {
		if i > from && (i-from >= l.Ops || bytes+op.size() > l.Bytes) {
			list = append(list, ops[from:i])
			from, bytes = i, 0
		}
		bytes += op.size()
	}
	if from < len(ops) {
		list = append(list, ops[from:])
	}
	return list
}
