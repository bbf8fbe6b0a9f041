package compose

import (
	"context"
	"io"
	"time"
)

// dialled is a client of a cluster that is made when it is needed. With a password that takes an answer of a member; all
// that need the client meanwhile wait for the same attempt. What fails may have failed before some of them came: these wait for
// the next one.
type dialled[C io.Closer] struct {
	client C
	made   bool
	trying *dialling[C] // nil: none
}

// dialling has the client or the error once it has ended.
type dialling[C io.Closer] struct {
	began  time.Time
	ended  chan struct{}
	client C
	err    error
}

// reach returns one of a cluster's clients. It waits until that is made, or ctx ends.
func reach[C io.Closer](ctx context.Context, c *cluster, d *dialled[C], dial func() (C, error)) (client C, err error) {
	for came := time.Now(); ; {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return client, ErrClosed
		}
		if d.made {
			defer c.mu.Unlock()
			return d.client, nil
		}
		if d.trying == nil {
			d.trying = &dialling[C]{began: time.Now(), ended: make(chan struct{})}
			go d.try(c, d.trying, dial)
		}
		a := d.trying
		c.mu.Unlock()
		select {
		case <-a.ended:
			if a.err == nil || !a.began.Before(came) {
				return a.client, a.err
			}
		case <-ctx.Done():
			return client, ctx.Err()
		}
	}
}

func (d *dialled[C]) try(c *cluster, a *dialling[C], dial func() (C, error)) {
	client, err := dial()
	c.mu.Lock()
	defer c.mu.Unlock()
	d.trying = nil
	switch {
	case err != nil:
		a.err = err
	case c.closed:
		a.err = ErrClosed
		go client.Close()
	default:
		d.client, d.made, a.client = client, true, client
	}
	close(a.ended)
}
