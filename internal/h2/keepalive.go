package h2

import (
	"errors"
	"time"
)

const (
	maxStrikes = 2
	// pingsWithout is the interval of pings that is permitted without calls, as in grpc-go.
	pingsWithout = 2 * time.Hour
)

var (
	errSilent = errors.New("h2: the client has not answered a ping")
	errOld    = errors.New("h2: the connection is too old")
)

// ping answers a ping, and ends connections that send too many (as grpc-go does: the third one
// that comes early, with nothing sent in between).
func (c *conn) ping(f frame) error {
	switch {
	case f.stream != 0:
		return fatal(protocolError, "PING of a stream")
	case len(f.payload) != 8:
		return fatal(frameSize, "malformed PING")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.has(flagAck) {
		c.pinged = false
		if c.drained != nil && string(c.drained) == string(f.payload) && !c.draining {
			c.refuseMore()
		}
		return c.budget.spend(1)
	}
	c.out = appendPing(c.out, flagAck, f.payload)
	now := time.Now()
	least := c.s.o.PingInterval
	if len(c.streams) == 0 && !c.s.o.PingsWithoutStreams {
		least = pingsWithout
	}
	switch {
	case c.sent:
		c.sent, c.strikes = false, 0
	case now.Sub(c.lastPing) < least:
		c.strikes++
	}
	c.lastPing = now
	if c.strikes > maxStrikes {
		return fatal(enhanceYourCalm, "too_many_pings")
	}
	return c.budget.spend(1)
}

// patience is how often tick has to look.
func (c *conn) patience() time.Duration {
	o := &c.s.o
	d := o.KeepAliveInterval
	if o.MaxIdle > 0 {
		d = min(d, o.MaxIdle)
	}
	if o.MaxAge > 0 {
		d = min(d, o.MaxAge)
	}
	return d
}

// tick pings a silent client, and ends connections that don't answer, that are idle for too
// long, or too old.
func (c *conn) tick() {
	now := time.Now()
	o := &c.s.o
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return
	}
	silent, old := now.Sub(c.heard), o.MaxAge > 0 && now.Sub(c.began) >= o.MaxAge
	switch {
	case c.pinged && silent >= o.KeepAliveTimeout:
		c.mu.Unlock()
		c.fail(errSilent)
		return
	case old && o.MaxAgeGrace > 0 && now.Sub(c.began) >= o.MaxAge+o.MaxAgeGrace:
		c.mu.Unlock()
		c.fail(errOld)
		return
	}
	next := c.patience()
	if silent >= o.KeepAliveInterval && !c.pinged {
		c.pinged = true
		c.out = appendPing(c.out, 0, make([]byte, 8))
		c.flush()
	}
	if c.pinged {
		next = o.KeepAliveTimeout
	} else if silent > 0 && silent < o.KeepAliveInterval {
		next = min(next, o.KeepAliveInterval-silent)
	}
	idle := o.MaxIdle > 0 && len(c.streams) == 0 && now.Sub(c.idleSince) >= o.MaxIdle
	if old && o.MaxAgeGrace > 0 {
		next = min(next, o.MaxAgeGrace)
	}
	if !c.dead {
		c.timer.Reset(next)
	}
	c.mu.Unlock()
	if idle || old {
		c.drain()
	}
}
