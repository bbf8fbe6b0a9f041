package h2

import "context"

// A handler of [Options.Inline] runs on its connection's reader. If it has to wait, it becomes
// an ordinary one: its goroutine gives up reading, and a new one goes on.

const (
	// maxInline is the size of a request, in bytes, above which its handler gets a goroutine.
	maxInline = 4 << 10
	// inlineAnswers is how many answers wait for each other at most.
	inlineAnswers = 32
)

// inlineKey is the key of the stream itself in its context.
type inlineKey struct{}

// Detach is called by a handler of [Options.Inline], on the goroutine that called it, before it
// waits or takes long. For other handlers, or the second time, it does nothing. ctx is the
// handler's, or one derived from it.
func Detach(ctx context.Context) {
	if st, ok := ctx.Value(inlineKey{}).(*stream); ok && st.onReader {
		st.onReader = false
		go st.c.readOn(nil)
	}
}

// small reports whether the call's handler may run on the reader. With conn.mu held.
func (st *stream) small() bool {
	in := &st.in
	return st.req.method.inline && st.failure == nil && !in.ready[0].compressed && in.ready[0].data.Len() <= maxInline
}

// runInline calls the handler of the call that is to run on the reader. It reports whether this
// goroutine still is the reader.
func (c *conn) runInline() bool {
	st := c.inline
	c.inline = nil
	st.onReader = true
	st.runUnary()
	if !st.onReader { // and the connection is another goroutine's
		return false
	}
	st.onReader = false
	if c.inlined++; c.inlined%inlineAnswers == 0 {
		c.uncork()
	}
	return true
}
