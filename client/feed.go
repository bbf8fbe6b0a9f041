package client

import (
	"context"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Notification is one delivery of a watch: all its events of one or more
// revisions.
type Notification struct {
	Watch *Watch
	// Events are in the order of their revisions. None: progress, nothing at or
	// below Revision is still to come.
	Events   []*clientv3.Event
	Revision int64
	// Err is the reason for which the watch has ended, in its last
	// notification.
	Err error
}

// Feed is a queue of notifications. Several watches of a session can share a
// feed, which shows ordered watches in their common order. It is not bounded:
// unread notifications take memory. The zero Feed is empty, and ready for use.
type Feed struct {
	mu      sync.Mutex
	waiting []Notification
	head    int
	ready   chan struct{} // closed on arrival of a notification; nil without waiters
	left    int           // watches that haven't ended
	out     chan Notification
}

// NewFeed makes an empty feed for Reader.WatchInto.
func NewFeed() *Feed { return new(Feed) }

// Next waits for the next notification. ErrWatchClosed: no watch fills the feed
// any more.
func (f *Feed) Next(ctx context.Context) (Notification, error) {
	if f == nil {
		return Notification{}, ErrWatchClosed
	}
	for {
		f.mu.Lock()
		n, ok := f.pop()
		if ok || f.left == 0 {
			f.mu.Unlock()
			if !ok {
				return n, ErrWatchClosed
			}
			return n, nil
		}
		if f.ready == nil {
			f.ready = make(chan struct{})
		}
		ready := f.ready
		f.mu.Unlock()
		select {
		case <-ready:
		case <-ctx.Done():
			return Notification{}, ctx.Err()
		}
	}
}

// TryNext returns the next notification if there is one. Notifications that
// precede the answer to a read are available once that answer is.
func (f *Feed) TryNext() (Notification, bool) {
	if f == nil {
		return Notification{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pop()
}

// Chan delivers the notifications through a channel, which is closed when no
// watch fills the feed any more. It must be read to its end, and not be mixed
// with Next.
func (f *Feed) Chan() <-chan Notification {
	if f == nil {
		f = NewFeed()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.out == nil {
		f.out = make(chan Notification)
		go f.pump(f.out)
	}
	return f.out
}

func (f *Feed) pump(out chan<- Notification) {
	defer close(out)
	for {
		n, err := f.Next(context.Background())
		if err != nil {
			return
		}
		out <- n
	}
}

// pop needs the lock.
func (f *Feed) pop() (Notification, bool) {
	if f.head == len(f.waiting) {
		return Notification{}, false
	}
	n := f.waiting[f.head]
	f.waiting[f.head] = Notification{}
	f.head++
	if f.head == len(f.waiting) {
		f.waiting, f.head = f.waiting[:0], 0
	}
	return n, true
}

// push adds a notification; last marks the watch's last one.
func (f *Feed) push(n Notification, last bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n.Err != nil || !last {
		f.waiting = append(f.waiting, n)
	}
	if last {
		f.left--
	}
	if f.ready != nil {
		close(f.ready)
		f.ready = nil
	}
}

func (f *Feed) join() {
	f.mu.Lock()
	f.left++
	f.mu.Unlock()
}
