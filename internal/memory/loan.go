package memory

import (
	"runtime"
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// leastLoan is the size, in bytes, of the least answer that is counted by its size. Below, it
// is less than what its call counts for.
const leastLoan = 4 << 10

// Lend takes the bytes of an answer, from pool, until gRPC has sent it.
func (b *Budget) Lend(buf *[]byte, pool mem.BufferPool) mem.Buffer {
	if b == nil || cap(*buf) < leastLoan {
		return mem.NewBuffer(buf, pool)
	}
	l := &loan{debt: &debt{b: b}, pool: pool}
	l.n.Store(int64(cap(*buf)))
	b.answers.Add(l.n.Load())
	// gRPC forgets buffers of connections that break, and leaves them to the collector.
	l.forgotten = runtime.AddCleanup(l, (*debt).pay, l.debt)
	return mem.NewBuffer(buf, l)
}

// debt is the bytes of a loan until they are paid back.
type debt struct {
	b *Budget
	n atomic.Int64
}

func (d *debt) pay() { d.b.answers.Add(-d.n.Swap(0)) }

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
