package compose

import (
	"context"
	"time"
)

// enqueue needs mu.
func (c *core) enqueue(r *request) {
	c.queue = append(c.queue, r)
	if !c.pumping {
		c.pumping = true
		c.wants.Store(true)
		go c.pump()
	}
}

// pump sends the waiting requests, one after the other, until none waits.
func (c *core) pump() {
	for {
		c.mu.Lock()
		if len(c.queue) == 0 {
			c.pumping = false
			c.wants.Store(false)
			c.mu.Unlock()
			return
		}
		r := c.queue[0]
		c.aim(r)
		l := c.links[r.cluster]
		switch {
		case r.session != nil && r.session.Err() != nil:
			c.drop(r, r.session.Err())
		case r.epoch != l.epoch.Load():
			c.drop(r, l.cluster.named(ErrBehind, false))
		case !l.ready() && l.sent.Load() != l.got.Load():
			c.pause() // what a session that has ended carried is failing, and what is behind it may have to, too
		case !l.ready():
			if r.by.IsZero() {
				r.by = time.Now().Add(c.cfg.Timeout)
			}
			c.mu.Unlock()
			if err := l.open(r.by); err != nil {
				c.unopened(r, l, err)
			}
		default:
			c.next(r, l)
		}
	}
}

// unopened: the cluster of the first of those that wait has no connection.
func (c *core) unopened(r *request, l *link, err error) {
	c.mu.Lock()
	if c.closed { // and nothing waits any more
		c.mu.Unlock()
		return
	}
	l.lost()
	c.failures.Add(1)
	c.drop(r, l.cluster.named(plain(err), false))
}

// next tries to send the first of those that wait. It needs mu, and releases
// it.
func (c *core) next(r *request, l *link) {
	c.collect(r.cluster)
	r.act = c.algo.retry(r.cluster, r.kind)
	if r.act == wait {
		c.pause()
		return
	}
	c.shift()
	err := l.send(context.Background(), r)
	if err != nil {
		c.algo.withdrawn(r.cluster)
	}
	c.mu.Unlock()
	if err != nil {
		r.done(nil, err)
	}
}

// pause waits for an answer. It needs mu, and releases it.
func (c *core) pause() {
	c.mu.Unlock()
	select {
	case <-c.wake:
	case <-c.ctx.Done():
	}
}

// drop ends the first request that waits without sending it. It needs mu, and
// releases it.
func (c *core) drop(r *request, why error) {
	c.algo.dropped()
	c.shift()
	c.mu.Unlock()
	r.done(nil, why)
}

// shift needs mu.
func (c *core) shift() {
	c.queue[0] = nil
	c.queue = c.queue[1:]
	if c.space != nil && len(c.queue) <= c.cfg.Pending*3/4 {
		close(c.space)
		c.space = nil
	}
}

// waitForRoom needs mu, and has it again when it returns.
func (c *core) waitForRoom(ctx context.Context) error {
	for {
		switch {
		case c.closed:
			return ErrClosed
		case len(c.queue) < c.cfg.Pending:
			return nil
		}
		if c.space == nil {
			c.space = make(chan struct{})
		}
		space := c.space
		c.mu.Unlock()
		var err error
		select {
		case <-space:
		case <-c.ctx.Done():
		case <-ctx.Done():
			err = ctx.Err()
		}
		c.mu.Lock()
		if err != nil {
			return err
		}
	}
}
