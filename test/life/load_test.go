package life

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ack is a write that was acknowledged.
type ack struct {
	key, value string
	rev        int64
}

// cell is what is known of a key: its last acknowledged write, and those without an answer.
type cell struct {
	ack
	maybe []string
}

// load writes, watches and keeps leases. Nothing is under way while gate is locked.
type load struct {
	gate sync.RWMutex

	mu       sync.Mutex
	cells    map[string]*cell
	acks     []ack // since the last check
	last     map[string]int64
	failures map[string]int // by the text of the error
	faults   []string       // what must not be
	slowest  time.Duration

	restoring atomic.Bool   // revisions are bumped, and those before are compacted
	renewed   chan struct{} // closed when clients are to come anew
	done      sync.WaitGroup
}

func newLoad() *load {
	return &load{cells: map[string]*cell{}, last: map[string]int64{}, failures: map[string]int{}, renewed: make(chan struct{})}
}

// still does something while nothing is written.
func (l *load) still(do func()) {
	l.gate.Lock()
	defer l.gate.Unlock()
	do()
}

// anew is closed when clients are to come anew, with other addresses or passwords; renew does that.
func (l *load) anew() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewed
}

func (l *load) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.renewed)
	l.renewed = make(chan struct{})
}

func (l *load) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

// attempt notes that a value may be written; acked that it was, failed that this isn't known.
func (l *load) attempt(key, value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cells[key] == nil {
		l.cells[key] = &cell{}
	}
	c := l.cells[key]
	c.maybe = append(c.maybe, value)
}

func (l *load) acked(writer, key, value string, rev int64, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.cells[key]
	c.maybe = slices.DeleteFunc(c.maybe, func(v string) bool { return v == value })
	if rev < l.last[writer] {
		l.faults = append(l.faults, fmt.Sprintf("%s: revision %d after %d", writer, rev, l.last[writer]))
	}
	l.last[writer] = rev
	c.ack = ack{key, value, rev}
	l.acks = append(l.acks, c.ack)
	l.slowest = max(l.slowest, took)
}

func (l *load) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures[err.Error()]++
}

// putter is what a writer writes with.
type putter interface {
	Put(ctx context.Context, key, val string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error)
}

// write puts one value after the other, until the context ends. open opens what it writes with, anew when closed tells
// that it has ended.
func (l *load) write(ctx context.Context, writer string, seed uint64, pace time.Duration, open func(context.Context) (putter, func(), <-chan struct{}, error)) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	var p putter
	var closed <-chan struct{}
	end := func() {}
	defer func() { end() }()
	for n := 0; ctx.Err() == nil; {
		select {
		case <-closed:
			p, closed = nil, nil
			end()
			end = func() {}
		default:
		}
		if p == nil {
			var err error
			if p, end, closed, err = open(ctx); err != nil {
				p, end = nil, func() {}
				l.failed(fmt.Errorf("%s: opening: %w", writer, err))
				sleep(ctx, 200*time.Millisecond)
				continue
			}
		}
		n++
		l.one(ctx, writer, fmt.Sprintf("/life/%s/%d/%d", writer, rnd.IntN(5), rnd.IntN(8)), n, p)
		sleep(ctx, time.Duration(rnd.Int64N(int64(2*pace))))
	}
}

func (l *load) one(ctx context.Context, writer, key string, n int, p putter) {
	l.gate.RLock()
	defer l.gate.RUnlock()
	if ctx.Err() != nil {
		return
	}
	value := fmt.Sprintf("%s-%d", key, n)
	l.attempt(key, value)
	asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	begun := time.Now()
	resp, err := p.Put(asked, key, value)
	if err != nil {
		l.failed(err)
		return
	}
	l.acked(writer, key, value, resp.Header.Revision, time.Since(begun))
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
