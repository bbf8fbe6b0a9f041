package script

import "iter"

// A Table maps strings, integers and booleans to values, in an order that is
// part of the language: 1..Len in sequence, then the others as they were
// inserted.
//
// The sequence may have holes but never ends in one, and Len()+1 is never among
// the fields. A deleted field stays as a tombstone (a nil value) so that a
// loop over the table keeps its place; tombstones go when the fields must grow and
// no loop is in the middle.
type Table struct {
	list    []Value
	fields  []field
	index   index // of fields, where there is room for more than smallTable
	numbers int32 // integer keys among the live fields
	dead    int32 // tombstones among fields
	walks   int32 // loops that are in the middle of it
	// loaded tables were made while the file was loaded. Every call shares them,
	// so none may write to them (nor to walks).
	loaded bool
	shape  *Shape // of a table of the host's that has one
}

type field struct{ key, value Value }

const (
	// smallTable is how many fields are searched one by one.
	smallTable = 8
	// minItems is the room that a sequence, or the fields, begin with.
	minItems = 4
	// maxFields keeps positions within their types.
	maxFields = 1 << 27
)

// Value is t as a value.
func (t *Table) Value() Value { return tableValue(t) }

// Len is the length of the sequence.
func (t *Table) Len() int { return len(t.list) }

// Index is the i-th value of the sequence, from 1, or nil.
func (t *Table) Index(i int) Value {
	if i < 1 || i > len(t.list) {
		return Value{}
	}
	return t.list[i-1]
}

// Get is the value of a key, or nil.
func (t *Table) Get(key Value) Value {
	if key.isInt() && key.n >= 1 && key.n <= int64(len(t.list)) {
		return t.list[key.n-1]
	}
	if i := t.find(key); i >= 0 {
		return t.fields[i].value
	}
	return Value{}
}

// Field is the value of a key that is a string, or nil.
func (t *Table) Field(name string) Value { return t.Get(String(name)) }

// All yields keys and values in the table's order. The table must not be
// written to meanwhile.
func (t *Table) All() iter.Seq2[Value, Value] {
	return func(yield func(Value, Value) bool) {
		for i, v := range t.list {
			if !v.IsNil() && !yield(Int(int64(i)+1), v) {
				return
			}
		}
		for _, f := range t.fields {
			if !f.value.IsNil() && !yield(f.key, f.value) {
				return
			}
		}
	}
}

// find is the position of a live field, or -1.
func (t *Table) find(key Value) int {
	if t.index != nil {
		return t.lookup(key, hash(key))
	}
	for i := range t.fields {
		f := &t.fields[i]
		if f.key.n != key.n || f.value.p == nil {
			continue
		}
		if f.key.p == key.p || equal(f.key, key) {
			return i
		}
	}
	return -1
}

// set stores v under a key that checkKey has accepted.
func (c *Call) set(t *Table, key, v Value, at position) {
	if t.loaded && !c.loading {
		fail(at, "this table was made while the file was loaded, and nothing is kept between calls: make a new table, or use put")
	}
	if key.isInt() {
		n := int64(len(t.list))
		if key.n >= 1 && key.n <= n {
			t.list[key.n-1] = v
			if v.IsNil() && key.n == n {
				t.trim()
			}
			return
		}
		if key.n == n+1 {
			if !v.IsNil() {
				c.push(t, v, at)
			}
			return
		}
	}
	switch i := t.find(key); {
	case i >= 0 && v.IsNil():
		t.kill(i)
	case i >= 0:
		t.fields[i].value = v
	case !v.IsNil():
		c.addField(t, key, v, at)
	}
}

// push appends to the sequence, and takes over the fields that now continue it.
func (c *Call) push(t *Table, v Value, at position) {
	c.reserveItem(t, at)
	t.list = append(t.list, v)
	for t.numbers > 0 {
		i := t.find(Int(int64(len(t.list)) + 1))
		if i < 0 {
			return
		}
		c.spend(1, at)
		v := t.fields[i].value
		t.kill(i)
		c.reserveItem(t, at)
		t.list = append(t.list, v)
	}
}

func (c *Call) reserveItem(t *Table, at position) {
	if len(t.list) < cap(t.list) {
		return
	}
	n := max(minItems, 2*len(t.list))
	c.allocate(int64(n)*itemBytes, at)
	list := make([]Value, len(t.list), n)
	copy(list, t.list)
	t.list = list
}

// trim takes the holes off the end. Each was made by a step of its own.
func (t *Table) trim() {
	n := len(t.list)
	for n > 0 && t.list[n-1].IsNil() {
		n--
	}
	t.list = t.list[:n]
}

func (c *Call) addField(t *Table, key, v Value, at position) {
	if len(t.fields) == cap(t.fields) {
		c.makeRoom(t, at)
	}
	t.fields = append(t.fields, field{key, v})
	if key.isInt() {
		t.numbers++
	}
	if t.index != nil {
		t.enter(hash(key), len(t.fields)-1)
	}
}

// makeRoom drops tombstones if they are half of the fields, and grows otherwise.
func (c *Call) makeRoom(t *Table, at position) {
	n := len(t.fields)
	c.spend(int64(n), at)
	if t.walks > 0 || t.dead == 0 || 2*int(t.dead) < n {
		c.grow(t, max(minItems, 2*n), at)
		return
	}
	old := t.fields
	t.fields = old[:0]
	if t.index != nil {
		clear(t.index[cap(old):])
	}
	t.take(old, t.index)
	clear(old[len(t.fields):])
}

// grow moves the fields to an array of a larger capacity.
func (c *Call) grow(t *Table, room int, at position) {
	c.allocate(int64(room)*fieldBytes, at)
	if room > maxFields {
		fail(at, "the table is too large")
	}
	old, hashes := t.fields, t.index
	t.fields = make([]field, 0, room)
	if room > smallTable {
		for i := 0; hashes == nil && i < len(old); i++ {
			c.workOnKey(old[i].key, at)
		}
		c.allocate(indexBytes(room), at)
		t.index = newIndex(room)
	}
	t.take(old, hashes)
}

// take appends fields whose hashes may be known, without the tombstones unless these
// keep a loop's place.
func (t *Table) take(old []field, hashes index) {
	for i, f := range old {
		dead := f.value.IsNil()
		if dead && t.walks == 0 {
			continue
		}
		t.fields = append(t.fields, f)
		switch {
		case dead || t.index == nil:
		case hashes == nil:
			t.enter(hash(f.key), len(t.fields)-1)
		default:
			t.enter(hashes[i], len(t.fields)-1)
		}
	}
	if t.walks == 0 {
		t.dead = 0
	}
}

func (t *Table) kill(i int) {
	if t.fields[i].key.isInt() {
		t.numbers--
	}
	if t.index != nil {
		t.strike(i)
	}
	t.fields[i] = field{}
	t.dead++
}

// newTable makes a table with room for so many values in sequence and so many others.
func (c *Call) newTable(items, fields int, at position) *Table {
	c.allocate(tableBytes, at)
	t := &Table{loaded: c.loading}
	if items > 0 {
		c.allocate(int64(items)*itemBytes, at)
		t.list = make([]Value, 0, items)
	}
	if fields > 0 {
		c.grow(t, fields, at)
	}
	return t
}

// checkKey refuses values that can't be keys, and charges for hashing a long one.
func (c *Call) checkKey(key Value, at position) {
	switch key.Kind() {
	case NilKind:
		fail(at, "nil can't be a key")
	case TableKind, FunctionKind:
		fail(at, "a %s can't be a key: use strings, numbers or booleans", key.Kind())
	}
	c.workOnKey(key, at)
}
