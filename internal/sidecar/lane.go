package sidecar

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/stoa-kv/stoa/client"
)

// A lane carries independent requests over one session. It sends them in batches: while one is
// under way, those that come gather for the next. So batches grow with the load, and a request
// that comes alone goes at once (alone.go). (With two batches under way, each is smaller.)
//
// mu guards all but m. A batch is sent, and its answers are received, without the lock.
type lane struct {
	m *metrics

	mu      sync.Mutex
	s       carrier // nil: the lane isn't open
	waiting []*request
	sent    time.Time     // of the batch under way; zero: none is
	usual   time.Duration // that a batch takes, about
	wake    chan struct{}
}

// request is a request in a lane.
type request struct {
	shared
	gone     bool // its caller has taken it back; guarded by lane.mu
	launched bool // guarded by lane.mu
	done     chan struct{}
	answer   []byte
	err      error
}

const (
	maxBatch      = 256
	maxBatchBytes = 64 << 10
	// A request isn't sent behind a batch that takes this many times as long as usual.
	patience                 = 4
	minPatience, maxPatience = 100 * time.Millisecond, time.Second
)

var (
	// errNotTaken: the request was not sent, or had no effect and may go as a call of its own.
	errNotTaken = errors.New("sidecar: not taken")
	// errLost: the session has ended, and whether the request took effect is unknown.
	errLost = errors.New("sidecar: the session has ended")
)

// A carrier is a session, as a lane uses it.
type carrier interface {
	Done() <-chan struct{}
	// Err is nil until Done is closed.
	Err() error
	// send sends all of a batch or, with an error, nothing. The answers come in the order
	// of the requests.
	send(batch []*request) ([]answer, error)
	// call carries a read out in no order with others.
	call(ctx context.Context, r shared) ([]byte, error)
}

// answer is client.Future.
type answer interface {
	Wait(ctx context.Context) ([]byte, error)
}

func newLane(m *metrics) *lane { return &lane{m: m, wake: make(chan struct{}, 1)} }

// limit is how long a batch may take before others are not sent behind it. It needs the
// lock.
func (l *lane) limit() time.Duration { return min(max(minPatience, patience*l.usual), maxPatience) }

// do carries a request out, or returns errNotTaken. If ctx ends first, it is unknown whether
// the request takes effect.
func (l *lane) do(ctx context.Context, s shared) ([]byte, error) {
	l.mu.Lock()
	limit := l.limit()
	switch {
	case l.s == nil || !l.sent.IsZero() && time.Since(l.sent) > limit:
		l.mu.Unlock()
		return nil, errNotTaken
	case l.sent.IsZero() && len(l.waiting) == 0:
		l.sent = time.Now()
		carrier := l.s
		l.mu.Unlock()
		return l.alone(ctx, carrier, s, limit)
	}
	r := &request{shared: s, done: make(chan struct{})}
	l.waiting = append(l.waiting, r)
	l.mu.Unlock()
	l.stir()

	ctx, cancel := timed(ctx)
	defer cancel()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-r.done:
		return r.answer, r.err
	case <-ctx.Done():
	case <-late.C:
		if l.takeBack(r) {
			return nil, errNotTaken
		}
		select {
		case <-r.done:
			return r.answer, r.err
		case <-ctx.Done():
		}
	}
	l.takeBack(r)
	return nil, context.Cause(ctx)
}

// requestTimeout is that of a member: a session would wait for longer.
const requestTimeout = 7 * time.Second

// timed is ctx with a member's time limit, and its error.
func timed(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, requestTimeout, rpctypes.ErrGRPCTimeout)
}

// takeBack reports whether the request was not sent, and won't be.
func (l *lane) takeBack(r *request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.gone = true
	return !r.launched
}

func (l *lane) stir() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// carry sends requests over a session until that has ended or ctx has. Requests that are
// under way when ctx ends are abandoned with their session.
func (l *lane) carry(ctx context.Context, s carrier) {
	l.mu.Lock()
	l.s, l.usual = s, 0
	l.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { l.stir() })
	defer stop()
	for ctx.Err() == nil && s.Err() == nil {
		if batch := l.next(); batch != nil {
			l.send(ctx, s, batch)
			continue
		}
		select {
		case <-l.wake:
		case <-s.Done():
		}
	}
	l.mu.Lock()
	l.s = nil
	left := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	for _, r := range left {
		r.end(nil, errNotTaken)
	}
}

// next is the next batch, which is under way then; nil if nothing waits, or one is under way.
func (l *lane) next() (batch []*request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.sent.IsZero() {
		return nil
	}
	bytes, n := 0, 0
	for ; n < len(l.waiting) && len(batch) < maxBatch && bytes < maxBatchBytes; n++ {
		if r := l.waiting[n]; !r.gone {
			r.launched = true
			batch = append(batch, r)
			bytes += len(r.body)
		}
	}
	l.waiting = l.waiting[n:]
	if len(l.waiting) == 0 {
		l.waiting = nil
	}
	if batch != nil {
		l.sent = time.Now()
	}
	return batch
}

// send carries out the batch that is under way.
func (l *lane) send(ctx context.Context, s carrier, batch []*request) {
	defer l.over()
	answers, err := s.send(batch)
	if err != nil {
		for _, r := range batch {
			r.end(nil, errNotTaken)
		}
		return
	}
	l.m.batches.Inc()
	l.m.batched.Add(float64(len(batch)))
	for i, r := range batch {
		answer, err := answers[i].Wait(ctx)
		if lost(s, err) || err != nil && ctx.Err() != nil && !errors.Is(err, client.ErrNotSent) {
			err = errLost
		}
		r.end(answer, err)
	}
}

// lost reports whether the error of an answer is that the session has ended after the request was sent.
func lost(s carrier, err error) bool {
	return err != nil && !errors.Is(err, client.ErrNotSent) && s.Err() != nil && errors.Is(err, s.Err())
}

// over ends the batch that is under way.
func (l *lane) over() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.usual += (time.Since(l.sent) - l.usual) / 8
	l.sent = time.Time{}
	if len(l.waiting) > 0 {
		l.stir() // carry may have found this one under way
	}
}

func (r *request) end(answer []byte, err error) {
	r.answer, r.err = answer, err
	close(r.done)
}
