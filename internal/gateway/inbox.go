package gateway

import (
	"io"
	"sync"
)

// inboxBytes is what an inbox holds.
const inboxBytes = 64 << 10

// inbox is a pipe that holds some bytes. Behind a message that can't be decoded nothing is read any
// more: through a pipe that holds nothing, its writer would wait with the next message, and not see the
// client leave.
//
// Write, Read and CloseWithError may be called from different goroutines.
type inbox struct {
	mu      sync.Mutex
	changed sync.Cond
	held    []byte
	closed  error // nil: it is open
}

func newInbox() *inbox {
	b := &inbox{}
	b.changed.L = &b.mu
	return b
}

// Write implements io.Writer. It waits for room.
func (b *inbox) Write(p []byte) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n < len(p) {
		for len(b.held) == inboxBytes && b.closed == nil {
			b.changed.Wait()
		}
		if b.closed != nil {
			return n, b.closed
		}
		part := min(len(p)-n, inboxBytes-len(b.held))
		b.held = append(b.held, p[n:n+part]...)
		n += part
		b.changed.Broadcast()
	}
	return n, nil
}

// Read implements io.Reader. It reads what is held also after the end.
func (b *inbox) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.held) == 0 && b.closed == nil {
		b.changed.Wait()
	}
	if len(b.held) == 0 {
		return 0, b.closed
	}
	n := copy(p, b.held)
	b.held = b.held[:copy(b.held, b.held[n:])]
	b.changed.Broadcast()
	return n, nil
}

// CloseWithError has Write fail with the error, and Read once nothing is held. The first one counts.
func (b *inbox) CloseWithError(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed == nil {
		b.closed = err
	}
	b.changed.Broadcast()
}

// Close implements io.Closer: Read ends with io.EOF.
func (b *inbox) Close() error {
	b.CloseWithError(io.EOF)
	return nil
}
