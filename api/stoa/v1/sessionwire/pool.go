package sessionwire

import (
	"math/bits"
	"sync"

	"google.golang.org/grpc/mem"
)

// Pool is memory for gRPC's messages, reused without clearing. A buffer's user
// must write it before reading it, as gRPC and its codecs do: it contains an
// earlier message, perhaps of another client.
//
// gRPC's own pool has few sizes and clears a buffer, all of it, each time that it
// hands it out: a message of 33 KiB costs the clearing of a megabyte. Sessions' and
// servers' messages are often that large.
var Pool mem.BufferPool = new(pool)

type pool struct {
	sizes [largestBuffer - leastBuffer + 1]sync.Pool
}

// Buffers have a power of two of bytes, these at least and at most. gRPC doesn't pool
// what is smaller; a full message between servers fits into the largest.
const (
	leastBuffer   = 10
	largestBuffer = 21
)

// Get implements mem.BufferPool. The buffer's content is undefined.
func (p *pool) Get(n int) *[]byte {
	exp := max(bits.Len(uint(max(n, 1)-1)), leastBuffer)
	if exp > largestBuffer {
		b := make([]byte, n)
		return &b
	}
	b, ok := p.sizes[exp-leastBuffer].Get().(*[]byte)
	if !ok {
		fresh := make([]byte, 1<<exp)
		b = &fresh
	}
	*b = (*b)[:n]
	return b
}

// Put implements mem.BufferPool. A buffer goes to the largest size class that
// its capacity suffices for.
func (p *pool) Put(b *[]byte) {
	exp := bits.Len(uint(cap(*b))) - 1
	if exp < leastBuffer || exp > largestBuffer {
		return
	}
	p.sizes[exp-leastBuffer].Put(b)
}
