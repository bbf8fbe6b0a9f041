package script

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"
)

// Keep drops all objects that the file has created except those reachable from roots,
// which are values of this module, and returns how many bytes the module keeps. If
// they are more than limit that is an *Error, and the module is of no use any more. It
// must be called before the first call.
func (m *Module) Keep(limit int64, roots ...Value) (int64, error) {
	m.export = Value{}
	k := keeper{left: limit - m.kept, seen: map[unsafe.Pointer]bool{}, strings: map[text]string{}}
	for i := range roots {
		k.refer(&roots[i])
	}
	for len(k.todo) > 0 && k.left >= 0 {
		v := k.todo[len(k.todo)-1]
		k.todo = k.todo[:len(k.todo)-1]
		k.inside(v)
	}
	if k.left < 0 {
		return 0, &Error{Reason: fmt.Sprintf("the extension keeps more than %d bytes of memory for as long as it is registered: its code, and what its functions use of the file's locals", limit), Limit: true}
	}
	return limit - k.left, nil
}

// keeper counts the reachable objects, and packs them: strings that are a part of larger
// ones become strings of their own, tables lose their unused capacity.
type keeper struct {
	left    int64
	seen    map[unsafe.Pointer]bool // tables, functions, cells
	strings map[text]string         // as they are kept
	todo    []Value
}

// text is a string by where it lies: two that share it go on sharing it.
type text struct {
	p unsafe.Pointer
	n int
}

// refer counts the memory that a value refers to, and queues tables, functions and cells
// for inside. The memory must not be copied, however little it is, before it has been
// counted.
func (k *keeper) refer(v *Value) {
	switch v.Kind() {
	case StringKind:
		if k.left -= keptByString(int64(v.size())); k.left < 0 {
			return
		}
		at := text{v.p, v.size()}
		s, ok := k.strings[at]
		if !ok {
			s = strings.Clone(v.str())
			k.strings[at] = s
		}
		*v = String(s)
	case TableKind, FunctionKind, cellKind:
		if !k.seen[v.p] {
			k.seen[v.p] = true
			k.todo = append(k.todo, *v)
		}
	}
}

// inside counts a table, a function or a cell, and refers its content.
func (k *keeper) inside(v Value) {
	switch v.Kind() {
	case TableKind:
		k.table(v.table())
	case FunctionKind:
		f := v.closure()
		k.left -= closureKept + boundKept*int64(len(f.bound))
		for i := range f.bound {
			b := &f.bound[i]
			if b.cell != nil {
				c := cellValue(b.cell)
				k.refer(&c)
			} else {
				k.refer(&b.value)
			}
		}
	case cellKind:
		k.left -= cellKept
		k.refer(&v.cell().value)
	}
}

func (k *keeper) table(t *Table) {
	t.pack()
	k.left -= tableKept + itemKept*int64(len(t.list)) + fieldKept*int64(len(t.fields))
	if t.index != nil {
		k.left -= indexKept * int64(len(t.fields))
	}
	for i := range t.list {
		k.refer(&t.list[i])
	}
	for i := range t.fields {
		k.refer(&t.fields[i].key)
		k.refer(&t.fields[i].value)
	}
	if t.index != nil && k.left >= 0 {
		t.reindex() // for the capacity that it has now
	}
}

// pack removes tombstones and unused capacity.
func (t *Table) pack() {
	t.list = slices.Clip(slices.Clone(t.list))
	live := make([]field, 0, len(t.fields)-int(t.dead))
	for _, f := range t.fields {
		if !f.value.IsNil() {
			live = append(live, f)
		}
	}
	t.fields, t.dead = live, 0
	if len(live) <= smallTable {
		t.index = nil
	}
}
