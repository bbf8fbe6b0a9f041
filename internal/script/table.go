package script

import (
	"iter"
	"math"
)

// A Table maps strings, integers and booleans to values, in an order that is
// part of the language: 1..Len in sequence, then the others as they were
// inserted.
//
// The sequence may have holes but never ends in one, and Len()+1 is never among
// the fields. A deleted field stays as a tombstone (a nil value) so that who
// walks the table keeps his place; tombstones go when the fields must grow and
// nobody walks.
type Table struct {
	list    []Value
	fields  []field
	index   *index // of fields, once there are more than smallTable
	numbers int    // integer keys among the live fields
	dead    int    // tombstones among fields
	walks   int    // loops that are in the middle of it
	// loaded tables were made while the file was loaded. Every call shares them,
	// so none may write to them (nor to walks).
	loaded bool
}

type field struct{ key, value Value }

// smallTable is how many fields are searched one by one.
const smallTable = 8

// index finds fields. Go's maps are seeded at random, so that no script can make
// all its keys collide; they are never iterated over.
type index struct {
	strings  map[string]int32
	integers map[int64]int32
	booleans [2]int32 // position + 1
}

// What tables cost. They are charged by capacity, which grows by our own rule
// and not by that of Go's append.
const (
	tableBytes = 96
	itemBytes  = 16
	fieldBytes = 32
	indexBytes = 64 // per field, on top
	minItems   = 4
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
		return t.index.find(key)
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
	if len(t.fields) >= math.MaxInt32 {
		fail(at, "the table is too large")
	}
	if len(t.fields) == cap(t.fields) || t.index == nil && len(t.fields) == smallTable {
		c.makeRoom(t, at)
	}
	t.fields = append(t.fields, field{key, v})
	if key.isInt() {
		t.numbers++
	}
	if t.index != nil {
		t.index.put(key, len(t.fields)-1)
	}
}

// makeRoom drops tombstones if they are half of the fields, and grows otherwise.
func (c *Call) makeRoom(t *Table, at position) {
	c.spend(int64(len(t.fields)), at)
	room, cost := cap(t.fields), int64(0)
	grow := t.walks > 0 || t.dead == 0 || t.dead*2 < len(t.fields)
	if grow {
		room = max(minItems, 2*len(t.fields))
		cost = int64(room) * fieldBytes
	}
	if room > smallTable {
		cost += int64(room) * indexBytes
	}
	c.allocate(cost, at)

	old, into := t.fields, t.fields[:0]
	if grow {
		into = make([]field, 0, room)
	}
	for _, f := range old {
		if t.walks > 0 || !f.value.IsNil() {
			into = append(into, f)
		}
	}
	if !grow {
		clear(old[len(into):])
	}
	if t.walks == 0 {
		t.dead = 0
	}
	t.fields = into
	if room > smallTable {
		t.reindex()
	}
}

func (t *Table) kill(i int) {
	f := &t.fields[i]
	if f.key.isInt() {
		t.numbers--
	}
	if t.index != nil {
		t.index.remove(f.key)
	}
	f.value = Value{}
	t.dead++
}

func (t *Table) reindex() {
	t.index = &index{}
	for i, f := range t.fields {
		if !f.value.IsNil() {
			t.index.put(f.key, i)
		}
	}
}

func (x *index) find(key Value) int {
	i, ok := int32(0), false
	switch key.Kind() {
	case StringKind:
		i, ok = x.strings[key.str()]
	case IntKind:
		i, ok = x.integers[key.n]
	case BoolKind:
		i = x.booleans[key.n] - 1
		ok = i >= 0
	}
	if !ok {
		return -1
	}
	return int(i)
}

func (x *index) put(key Value, i int) {
	switch key.Kind() {
	case StringKind:
		if x.strings == nil {
			x.strings = map[string]int32{}
		}
		x.strings[key.str()] = int32(i)
	case IntKind:
		if x.integers == nil {
			x.integers = map[int64]int32{}
		}
		x.integers[key.n] = int32(i)
	case BoolKind:
		x.booleans[key.n] = int32(i) + 1
	}
}

func (x *index) remove(key Value) {
	switch key.Kind() {
	case StringKind:
		delete(x.strings, key.str())
	case IntKind:
		delete(x.integers, key.n)
	case BoolKind:
		x.booleans[key.n] = 0
	}
}

func (c *Call) newTable(items, fields int, at position) *Table {
	cost := int64(tableBytes) + int64(items)*itemBytes + int64(fields)*fieldBytes
	if fields > smallTable {
		cost += int64(fields) * indexBytes
	}
	c.allocate(cost, at)
	t := &Table{loaded: c.loading}
	if items > 0 {
		t.list = make([]Value, 0, items)
	}
	if fields > 0 {
		t.fields = make([]field, 0, fields)
	}
	if fields > smallTable {
		t.index = &index{}
	}
	return t
}

// checkKey refuses what can't be a key, and charges for hashing a long one.
func (c *Call) checkKey(key Value, at position) {
	switch key.Kind() {
	case NilKind:
		fail(at, "nil can't be a key")
	case TableKind, FunctionKind:
		fail(at, "a %s can't be a key: use strings, numbers or booleans", key.Kind())
	case StringKind:
		c.work(key.size(), at)
	}
}
