package node

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/fault"
)

// compilations compile sources that clients want to register, on all servers, before they are
// proposed: apply then finds the result on each of them.
//
// It takes one source at a time, and pauses after it for three times as long as it took, and
// while it is compiled ([paceCompilation]): however many clients send sources, and however
// large they are, other requests go on.
// Requests for the same source share one turn, and those for too many sources at once are
// refused. The zero compilations are ready.
type compilations struct {
	busy    sync.Mutex   // held through the pause
	missing atomic.Int64 // how often another server wasn't ready when a source was proposed

	mu      sync.Mutex
	waiting map[extension.SourceID]*turn
}

// turn is the compilation that requests for one source wait for.
type turn struct {
	done chan struct{}
	err  error
}

// maxWaitingSources bounds how long a request waits for its turn: a few seconds if all of
// them are as large as a source can be.
const maxWaitingSources = 32

// do calls work for a source, or waits for the call that is under way.
func (a *compilations) do(source extension.SourceID, work func() error) error {
	a.mu.Lock()
	t := a.waiting[source]
	first := t == nil
	if first {
		if len(a.waiting) >= maxWaitingSources {
			a.mu.Unlock()
			return fault.TooManyRequests
		}
		t = &turn{done: make(chan struct{})}
		if a.waiting == nil {
			a.waiting = map[extension.SourceID]*turn{}
		}
		a.waiting[source] = t
	}
	a.mu.Unlock()
	if first {
		t.err = a.paced(work)
		a.mu.Lock()
		delete(a.waiting, source)
		a.mu.Unlock()
		close(t.done)
	}
	<-t.done
	return t.err
}

// Of a compilation: how long it works until it pauses for three times as long. On a machine
// where the work itself has to wait, the pauses don't grow.
const (
	compilePiece = 400 * time.Microsecond
	longestPause = 2 * time.Millisecond
	longestRest  = 100 * time.Millisecond // after it
)

// paceCompilation has a compilation take a quarter of a core, so that other requests needn't
// wait for the end of it; see [apply.NewCodes].
func paceCompilation(hurry <-chan struct{}) func() {
	since := time.Now()
	return func() {
		worked := time.Since(since)
		if worked < compilePiece {
			return
		}
		t := time.NewTimer(min(3*worked, longestPause))
		select {
		case <-t.C:
		case <-hurry:
			t.Stop()
		}
		since = time.Now()
	}
}

func (a *compilations) paced(work func() error) error {
	a.busy.Lock()
	began := time.Now()
	defer func() { time.AfterFunc(min(3*time.Since(began), longestRest), a.busy.Unlock) }()
	return work()
}

// precompile has this server compile a source, and then the others, unless it would be refused.
func (n *Node) precompile(language int, source []byte) error {
	return n.compilations.do(extension.SourceOf(language, source), func() error {
		c := n.core.Load()
		if c.machine.Prepare(language, source) != nil {
			return nil // and the caller finds out
		}
		ready := make(chan struct{})
		c.replica.Announce(append(binary.AppendUvarint(nil, uint64(language)), source...), func(missing int) {
			n.compilations.missing.Add(int64(missing))
			close(ready)
		})
		<-ready
		return nil
	})
}

// announced has this server compile a source that another one is about to propose.
func (c *core) announced(body []byte, ready func()) {
	go func() {
		defer ready()
		if language, size := binary.Uvarint(body); size > 0 {
			_ = c.machine.Prepare(int(language), body[size:])
		}
	}()
}
