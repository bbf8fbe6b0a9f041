package h2

import (
	"context"
	"sync"
)

// A handler that waits for something which others do needn't stay for it: it returns, and its
// call is answered when that has happened. Such answers come in groups, those of one event, and
// for many connections: one goroutine deals with all that are ready, and then has each
// connection write what there is for it.

// later is the part of a call that is answered later. Guarded by life.mu until it is answered.
type later struct {
	finish   func(resp any, err error)
	answered bool
	answer   func() (any, error) // nil: the call has ended with err
	err      error
}

// Later lets a handler of a unary call return before its answer is known: what it returns is
// ignored, and the first call of ready gives the answer. ready doesn't block, and may be called
// from any goroutine, also before the handler returns. Its argument is called on a goroutine that
// many calls share, so it must neither wait nor take long.
//
// A call that is cancelled before, or whose deadline passes, is answered with the error of its
// context. In each case finish is called, once, with the answer and on the same goroutine, before
// the answer is sent.
//
// It returns false, and has done nothing, if ctx isn't that of a unary call of this package, or
// derived from it, or the call has been here already.
func Later(ctx context.Context, finish func(resp any, err error)) (ready func(answer func() (any, error)), ok bool) {
	st, ok := ctx.Value(inlineKey{}).(*stream)
	if !ok || st.req.method.unary == nil {
		return nil, false
	}
	l := &st.life
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.later != nil {
		return nil, false
	}
	l.later = &later{finish: finish}
	if l.err != nil {
		st.answerWith(nil, l.err)
	}
	return st.ready, true
}

func (st *stream) ready(answer func() (any, error)) {
	st.life.mu.Lock()
	defer st.life.mu.Unlock()
	st.answerWith(answer, nil)
}

// answerWith has the call answered, unless that has been done. With life.mu held.
func (st *stream) answerWith(answer func() (any, error), err error) {
	if l := st.life.later; !l.answered {
		l.answered, l.answer, l.err = true, answer, err
		st.c.s.answers.add(st)
	}
}

// answers are the calls that can be answered.
type answers struct {
	mu      sync.Mutex
	idle    sync.Cond // nothing runs any more; with mu
	list    []*stream
	spare   []*stream // empty
	running bool
}

// add may be called under any locks but mu. A connection ends once all its calls are added that are answered
// later; a handler that outlives its call may add it behind that.
func (a *answers) add(st *stream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append(a.list, st)
	if !a.running {
		a.running = true
		go a.run()
	}
}

// run answers until there is nothing to answer.
func (a *answers) run() {
	var conns []*conn
	for list := a.take(nil); list != nil; list = a.take(list) {
		for _, st := range list {
			st.answerLate()
			if c := st.c; !c.answered {
				c.answered = true
				conns = append(conns, c)
			}
		}
		for _, c := range conns {
			c.answered = false
			c.flushAside()
		}
		clear(conns)
		conns = conns[:0]
	}
}

// take returns the calls that have come since, nil if there are none, and then run ends.
func (a *answers) take(done []*stream) []*stream {
	clear(done)
	a.mu.Lock()
	defer a.mu.Unlock()
	if done != nil {
		a.spare = done[:0]
	}
	if len(a.list) == 0 {
		a.running = false
		a.idle.Broadcast()
		return nil
	}
	list := a.list
	a.list, a.spare = a.spare, nil
	return list
}

// wait returns when all is answered that was added before.
func (a *answers) wait() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.running {
		a.idle.Wait()
	}
}

func (st *stream) answerLate() {
	l := st.life.later
	var resp any
	err := l.err
	if l.answer != nil {
		resp, err = l.answer()
	}
	l.finish(resp, err)
	st.answer(resp, err)
}

// flushAside is flush for a goroutine that must not wait for the connection.
func (c *conn) flushAside() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mayWrite() && (len(c.out) > 0 || c.draining) {
		c.writing = true
		go c.writeAside()
	}
}

func (c *conn) writeAside() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write(false)
}
