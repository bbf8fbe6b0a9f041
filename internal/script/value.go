package script

import (
	"strconv"
	"unsafe"
)

// Kind is the type of a value.
type Kind uint8

// The kinds of values that scripts and host functions see.
const (
	NilKind Kind = iota
	BoolKind
	IntKind
	StringKind
	TableKind
	FunctionKind
	cellKind // a captured variable; only ever in a frame's slot
)

func (k Kind) String() string {
	switch k {
	case NilKind:
		return "nil"
	case BoolKind:
		return "boolean"
	case IntKind:
		return "number"
	case StringKind:
		return "string"
	case TableKind:
		return "table"
	case FunctionKind:
		return "function"
	}
	return "cell"
}

// A Value is nil (the zero Value), a boolean, an integer, a byte string, a table
// or a function. It is two words, so that integers, booleans and parts of
// strings cost no allocation and a value travels in registers:
//
//	nil       p is nil
//	integer   p is &intTag, n is the number
//	boolean   p is &boolTag, n is 0 or 1
//	others    p points to the bytes, table, function or cell; the top byte of n
//	          is the kind and, for strings, the rest of n the length
//
// Values made by a call belong to it: see [Module.Call].
type Value struct {
	_ [0]func() // == would compare the addresses of strings
	p unsafe.Pointer
	n int64
}

// Only their addresses are used; they are never written to.
var intTag, boolTag, emptyTag byte

const kindShift = 56

// Nil is the absence of a value.
func Nil() Value { return Value{} }

// Bool is true or false.
func Bool(b bool) Value {
	if b {
		return Value{p: unsafe.Pointer(&boolTag), n: 1}
	}
	return Value{p: unsafe.Pointer(&boolTag)}
}

// Int is an integer.
func Int(i int64) Value { return Value{p: unsafe.Pointer(&intTag), n: i} }

// String is a byte string that shares s's memory.
func String(s string) Value {
	p := unsafe.Pointer(unsafe.StringData(s))
	if len(s) == 0 {
		p = unsafe.Pointer(&emptyTag)
	}
	return Value{p: p, n: int64(StringKind)<<kindShift | int64(len(s))}
}

// Bytes is a byte string that shares b's memory: b must never be written to
// again.
func Bytes(b []byte) Value { return String(unsafe.String(unsafe.SliceData(b), len(b))) }

func tableValue(t *Table) Value {
	return Value{p: unsafe.Pointer(t), n: int64(TableKind) << kindShift}
}

func functionValue(f *closure) Value {
	return Value{p: unsafe.Pointer(f), n: int64(FunctionKind) << kindShift}
}

func cellValue(c *cell) Value {
	return Value{p: unsafe.Pointer(c), n: int64(cellKind) << kindShift}
}

// Kind returns the type of v.
func (v Value) Kind() Kind {
	switch v.p {
	case nil:
		return NilKind
	case unsafe.Pointer(&intTag):
		return IntKind
	case unsafe.Pointer(&boolTag):
		return BoolKind
	}
	return Kind(v.n >> kindShift)
}

// IsNil says whether v is nil.
func (v Value) IsNil() bool { return v.p == nil }

// Truthy says whether v counts as true: everything but nil and false.
func (v Value) Truthy() bool {
	return v.p != nil && (v.p != unsafe.Pointer(&boolTag) || v.n != 0)
}

// AsBool is v's truth value, if v is a boolean.
func (v Value) AsBool() (b, ok bool) {
	return v.p == unsafe.Pointer(&boolTag) && v.n != 0, v.p == unsafe.Pointer(&boolTag)
}

// AsInt is v's number, if v is an integer.
func (v Value) AsInt() (int64, bool) {
	if !v.isInt() {
		return 0, false
	}
	return v.n, true
}

// AsString is v's bytes, if v is a string. They may be a part of a much larger
// string: a caller that keeps them must clone them.
func (v Value) AsString() (string, bool) {
	if !v.isString() {
		return "", false
	}
	return v.str(), true
}

// AsBytes is v's bytes, if v is a string. They are shared and must not be written to.
func (v Value) AsBytes() ([]byte, bool) {
	if !v.isString() {
		return nil, false
	}
	return unsafe.Slice((*byte)(v.p), v.size()), true
}

// AsTable is the table that v is, if it is one.
func (v Value) AsTable() (*Table, bool) {
	if v.n>>kindShift == int64(TableKind) && v.Kind() == TableKind {
		return v.table(), true
	}
	return nil, false
}

func (v Value) isInt() bool { return v.p == unsafe.Pointer(&intTag) }

func (v Value) isString() bool {
	return v.n>>kindShift == int64(StringKind) && v.Kind() == StringKind
}

func (v Value) isTable() bool {
	return v.n>>kindShift == int64(TableKind) && v.Kind() == TableKind
}

func (v Value) isFunction() bool {
	return v.n>>kindShift == int64(FunctionKind) && v.Kind() == FunctionKind
}

// The kind must have been looked at before any of these.
func (v Value) str() string       { return unsafe.String((*byte)(v.p), v.size()) }
func (v Value) size() int         { return int(v.n & (1<<kindShift - 1)) }
func (v Value) table() *Table     { return (*Table)(v.p) }
func (v Value) closure() *closure { return (*closure)(v.p) }
func (v Value) cell() *cell       { return (*cell)(v.p) }

// equal is ==: numbers and strings by value, tables and functions by identity.
func equal(a, b Value) bool {
	if a.n != b.n {
		return false
	}
	return a.p == b.p || a.isString() && b.isString() && a.str() == b.str()
}

// text is the result of tostring for a value that has a text. Tables and functions
// have none: they have no identity but an address.
func (v Value) text() (string, bool) {
	switch v.Kind() {
	case NilKind:
		return "nil", true
	case BoolKind:
		return strconv.FormatBool(v.n != 0), true
	case IntKind:
		return strconv.FormatInt(v.n, 10), true
	case StringKind:
		return v.str(), true
	}
	return "", false
}
