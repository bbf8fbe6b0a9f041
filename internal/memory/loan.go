package memory

import (
	"runtime"
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// LeastLoan is the size, in bytes, of the least answer that is counted by its size. Below, it
// is less than what its call counts for.
const LeastLoan = 4 << 10

// Promise counts an answer before it is encoded: memory for it is promised, until it is lent or
// the promise is taken back. A nil one is of a budget that bounds nothing, or of a small answer.
type Promise struct {
	*debt
	kept bool
}

// Promise promises memory for an answer of n bytes; false: there is no room for it.
func (b *Budget) Promise(n int64) (*Promise, bool) {
	if b == nil || n < LeastLoan {
		return nil, true
	}
	if !b.enter(&b.answers, n, b.room.Load()) {
		return nil, false
	}
	p := &Promise{debt: &debt{b: b}}
	p.n.Store(n)
	return p, true
}

// TakeBack takes back a promise that has not been kept. It is called by who was given the promise,
// when the answer has been encoded or never will be.
func (p *Promise) TakeBack() {
	if p != nil && !p.kept {
		p.pay()
	}
}

// Lend gets memory for an answer of so many bytes from a pool, and returns the pool to which gRPC
// gives it back when it is sent. It counts before it is there: when there is little memory, getting
// it takes long. It keeps a promise, if there is one.
func (b *Budget) Lend(size int, pool mem.BufferPool, p *Promise) (*[]byte, mem.BufferPool) {
	if b == nil || size < LeastLoan {
		return pool.Get(size), pool
	}
	l := &loan{pool: pool}
	if p != nil {
		l.debt, p.kept = p.debt, true
	} else {
		l.debt = &debt{b: b}
	}
	l.come(size)
	buf := pool.Get(size)
	l.come(cap(*buf))
	// gRPC forgets buffers of connections that break, and leaves them to the collector.
	l.forgotten = runtime.AddCleanup(l, (*debt).pay, l.debt)
	return buf, l
}

// debt is the bytes of a loan until they are paid back.
type debt struct {
	b *Budget
	n atomic.Int64
}

// come makes the debt n bytes.
func (d *debt) come(n int) { d.b.answers.Add(int64(n) - d.n.Swap(int64(n))) }

func (d *debt) pay() { d.come(0) }

// loan is the pool to which one buffer is returned.
type loan struct {
	*debt
	pool      mem.BufferPool
	forgotten runtime.Cleanup
}

// Get implements mem.BufferPool.
func (l *loan) Get(n int) *[]byte { return l.pool.Get(n) }

// Put implements mem.BufferPool.
func (l *loan) Put(buf *[]byte) {
	l.forgotten.Stop()
	l.pay()
	l.pool.Put(buf)
}
