package engine

import (
	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// backlog holds a session's unanswered requests, encoded as on the wire, in the
// order of their numbers. A new stream resends them after the old one broke.
//
// Invariants:
//
//  1. calls[head:] have the numbers first, first+1, … without gaps.
//  2. log[logHead:] is the concatenation of their encodings.
//  3. The first sent of them were written to the present stream, and none after
//     carried to any.
type backlog struct {
	calls     []call
	head      int
	log       []byte
	logHead   int
	first     uint64
	sent      int
	sentBytes int
	carried   uint64 // the highest number written to any stream
}

// call is a request that waits for its reply.
type call struct {
	to    answerable
	size  int32 // of its encoding
	kind  stoapb.Kind
	level Level
}

// answerable is a waiter for a reply.
type answerable interface {
	// answer is called by the session's reading goroutine. The arrival and its
	// memory are valid only until it returns.
	answer(a *arrival)
	fail(err error)
}

// len is the number of requests without an answer.
func (b *backlog) len() int { return len(b.calls) - b.head }

// bytes is the size of their encodings.
func (b *backlog) bytes() int { return len(b.log) - b.logHead }

// next is the number that the next request gets.
func (b *backlog) next() uint64 { return b.first + uint64(b.len()) }

// push takes a request whose encoding the caller has just appended to log.
func (b *backlog) push(c call, size int) {
	c.size = int32(size)
	b.calls = append(b.calls, c)
}

// room makes space for n more bytes of log without growing it when answered
// requests take up half of it.
func (b *backlog) room(n int) {
	if len(b.log)+n <= cap(b.log) || b.logHead < len(b.log)/2 {
		return
	}
	b.log = b.log[:copy(b.log, b.log[b.logHead:])]
	b.logHead = 0
}

// take appends to dst the encodings of requests that the stream hasn't carried
// yet: up to about limit bytes, and so many that no more than window requests
// and windowBytes bytes are in flight. One is always allowed.
func (b *backlog) take(dst []byte, limit, window, windowBytes int) []byte {
	from := b.sentBytes
	for b.sent < b.len() {
		size := int(b.calls[b.head+b.sent].size)
		if b.sent > 0 && (b.sent >= window || b.sentBytes+size > windowBytes) {
			break
		}
		if b.sentBytes > from && b.sentBytes+size-from > limit {
			break
		}
		b.sent++
		b.sentBytes += size
	}
	b.carried = max(b.carried, b.first+uint64(b.sent)-1)
	return append(dst, b.log[b.logHead+from:b.logHead+b.sentBytes]...)
}

// pop removes the first request, which was sent and whose reply has come.
func (b *backlog) pop() call {
	c := b.calls[b.head]
	b.calls[b.head] = call{}
	b.head++
	b.logHead += int(c.size)
	b.first++
	b.sent--
	b.sentBytes -= int(c.size)
	b.tidy()
	return c
}

// bigLog is the size above which an idle session releases its log.
const bigLog = 256 << 10

func (b *backlog) tidy() {
	switch {
	case b.len() == 0:
		b.calls, b.head = b.calls[:0], 0
		b.log, b.logHead = b.log[:0], 0
		if cap(b.log) > bigLog {
			b.log = nil
		}
	case b.head >= 1024 && b.head > len(b.calls)/2:
		n := copy(b.calls, b.calls[b.head:])
		clear(b.calls[n:])
		b.calls, b.head = b.calls[:n], 0
	}
}

// rewind prepares for a new stream: nothing has been sent on it.
func (b *backlog) rewind() { b.sent, b.sentBytes = 0, 0 }

// drain removes and returns everything.
func (b *backlog) drain() []call {
	left := b.calls[b.head:]
	b.first += uint64(len(left))
	b.calls, b.head, b.log, b.logHead = nil, 0, nil, 0
	b.rewind()
	return left
}
