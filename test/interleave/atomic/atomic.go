// Package atomic is Go's package sync/atomic with a point of package interleave in front of each
// operation. It takes that package's place in an overlay.
package atomic

import (
	"sync/atomic"

	"github.com/stoa-kv/stoa/test/interleave"
)

// integer is one of the integers of package sync/atomic.
type integer[T any] interface {
	Load() T
	Store(T)
	Add(T) T
	Swap(T) T
	CompareAndSwap(before, after T) bool
}

// number has the points of an integer.
type number[T any, I any, P interface {
	*I
	integer[T]
}] struct{ of I }

func (n *number[T, I, P]) Load() T {
	interleave.Point()
	return P(&n.of).Load()
}

func (n *number[T, I, P]) Store(v T) {
	interleave.Point()
	P(&n.of).Store(v)
}

func (n *number[T, I, P]) Add(by T) T {
	interleave.Point()
	return P(&n.of).Add(by)
}

func (n *number[T, I, P]) Swap(v T) T {
	interleave.Point()
	return P(&n.of).Swap(v)
}

func (n *number[T, I, P]) CompareAndSwap(before, after T) bool {
	interleave.Point()
	return P(&n.of).CompareAndSwap(before, after)
}

// The integers.
type (
	Int32  = number[int32, atomic.Int32, *atomic.Int32]
	Int64  = number[int64, atomic.Int64, *atomic.Int64]
	Uint32 = number[uint32, atomic.Uint32, *atomic.Uint32]
	Uint64 = number[uint64, atomic.Uint64, *atomic.Uint64]
)

// Bool is atomic.Bool.
type Bool struct{ of atomic.Bool }

func (b *Bool) Load() bool {
	interleave.Point()
	return b.of.Load()
}

func (b *Bool) Store(v bool) {
	interleave.Point()
	b.of.Store(v)
}

func (b *Bool) Swap(v bool) bool {
	interleave.Point()
	return b.of.Swap(v)
}

func (b *Bool) CompareAndSwap(before, after bool) bool {
	interleave.Point()
	return b.of.CompareAndSwap(before, after)
}

// Pointer is atomic.Pointer.
type Pointer[T any] struct{ of atomic.Pointer[T] }

func (p *Pointer[T]) Load() *T {
	interleave.Point()
	return p.of.Load()
}

func (p *Pointer[T]) Store(v *T) {
	interleave.Point()
	p.of.Store(v)
}

func (p *Pointer[T]) Swap(v *T) *T {
	interleave.Point()
	return p.of.Swap(v)
}

func (p *Pointer[T]) CompareAndSwap(before, after *T) bool {
	interleave.Point()
	return p.of.CompareAndSwap(before, after)
}
