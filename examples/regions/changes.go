package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/client/compose"
)

// changes are the latest changes, in any region, in the order of one feed.
type changes struct {
	feed *compose.Feed

	mu      sync.Mutex
	lines   []string
	watches map[*compose.FeedWatch]*progress
}

// progress is a watch's position.
type progress struct {
	next  int64         // the revision to go on with
	ended chan struct{} // closed when nothing comes any more
}

const (
	linesKept = 1000
	again     = time.Second
)

func newChanges(c *compose.Client) *changes {
	return &changes{feed: c.NewFeed(), watches: map[*compose.FeedWatch]*progress{}}
}

// follow reads the events of keep's watches from the feed.
func (ch *changes) follow(ctx context.Context) {
	for {
		n, err := ch.feed.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, compose.ErrFeedClosed): // no watch is open just now
			pause(ctx, again/10)
			continue
		}
		p := ch.of(n.Watch)
		if n.Err != nil {
			log.Printf("not watching: %v", n.Err)
			close(p.ended)
			continue
		}
		ch.mu.Lock()
		p.next = n.Revision + 1
		for _, ev := range n.Events {
			line := fmt.Sprintf("%s = %s", ev.Kv.Key, ev.Kv.Value)
			if ev.Type == clientv3.EventTypeDelete {
				line = fmt.Sprintf("%s is gone", ev.Kv.Key)
			}
			ch.lines = append(ch.lines, line)
		}
		ch.lines = ch.lines[max(0, len(ch.lines)-linesKept):]
		ch.mu.Unlock()
	}
}

// keep watches a prefix until ctx ends. After its cluster was cut off, it
// resumes at its position, so no event is missed.
func (ch *changes) keep(ctx context.Context, prefix string) {
	next := int64(0)
	for ctx.Err() == nil {
		// Progress tells how far the watch is even if nothing changes.
		watches, err := ch.feed.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(next), clientv3.WithProgressNotify())
		if err == nil {
			p := ch.of(watches[0]) // a prefix has one route
			select {
			case <-p.ended:
			case <-ctx.Done():
			}
			ch.mu.Lock()
			next = max(next, p.next)
			delete(ch.watches, watches[0])
			ch.mu.Unlock()
		}
		pause(ctx, again)
	}
}

func (ch *changes) of(w *compose.FeedWatch) *progress {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	p := ch.watches[w]
	if p == nil {
		p = &progress{ended: make(chan struct{})}
		ch.watches[w] = p
	}
	return p
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
