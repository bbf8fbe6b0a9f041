package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// pipe is one connection to a server, with the sessions that it carries. What a
// session asks for is a matter of the pipe: drive only says how many requests.
type pipe interface {
	sessions() int
	// ask puts requests of a session among what is to be sent.
	ask(session, n int) error
	flush() error
	// pending tells whether something can be received without waiting.
	pending() bool
	// await waits until something can be received, at most until the given time.
	await(until time.Time) (bool, error)
	// receive takes in what comes next, and says how many requests of which session
	// that answers, in the order in which they were asked.
	receive(answered func(session, n int)) error
	// close ends the sessions, all of whose requests are answered, and the connection.
	close() error
}

// flow is what one session has under way.
type flow struct {
	under int
	sent  []sent
}

// sent are requests that were sent at one time.
type sent struct {
	n  int
	at time.Time
}

// driver puts one pipe to work, on one goroutine.
type driver struct {
	pipe  pipe
	r     *running
	c     *connection
	flows []flow
	under int
	err   error
}

// drive keeps depth requests of every session of a pipe under way until the
// load is stopped; or, with a pace (requests per second of the whole pipe), at
// most as many. A pace waits for no answer, so delays of the server are
// counted; those of the generator, since Go's timers are up to a millisecond
// late, are not.
func (c *connection) drive(r *running, p pipe, depth int, pace float64) error {
	d := &driver{pipe: p, r: r, c: c, flows: make([]flow, p.sessions())}
	var err error
	if pace > 0 {
		err = d.paced(depth, pace)
	} else {
		err = d.closed(depth)
	}
	return errors.Join(err, d.err)
}

func (d *driver) ask(s, n int) {
	f := &d.flows[s]
	f.sent = append(f.sent, sent{n, time.Now()})
	f.under += n
	d.under += n
	if err := d.pipe.ask(s, n); err != nil && d.err == nil {
		d.err = err
	}
}

// closed sends a new request for every answer, and those for the answers of one
// message in one message.
func (d *driver) closed(depth int) error {
	for s := range d.flows {
		d.ask(s, depth)
	}
	again := func(s, n int) {
		d.answered(s, n)
		if !d.r.stopped.Load() {
			d.ask(s, n)
		}
	}
	for d.under > 0 && d.err == nil {
		if !d.pipe.pending() {
			if err := d.pipe.flush(); err != nil {
				return err
			}
		}
		if err := d.pipe.receive(again); err != nil {
			return err
		}
	}
	return nil
}

// pacedTick is how often a paced pipe sends at most: independent clients don't
// send all at once, but each send costs the generator something.
const pacedTick = 2 * time.Millisecond

func (d *driver) paced(depth int, pace float64) error {
	tick := max(time.Duration(float64(time.Second)/pace), pacedTick)
	// Not all pipes at the same moment.
	next, due := time.Now().Add(time.Duration(rand.Int64N(int64(tick)))), 0.0
	for turn := 0; d.err == nil && (d.under > 0 || !d.r.stopped.Load()); {
		if now := time.Now(); !now.Before(next) {
			due += pace * tick.Seconds()
			next = next.Add(tick)
			if now.Sub(next) > time.Second {
				next = now // what could not be sent then is not made up for
			}
			turn, due = d.round(turn, due, depth)
			if err := d.pipe.flush(); err != nil {
				return err
			}
		}
		ready, err := d.pipe.await(next)
		if err != nil {
			return err
		}
		if ready {
			if err := d.pipe.receive(d.answered); err != nil {
				return err
			}
		}
	}
	return nil
}

// round sends what is due, from all sessions in turn. What finds all sessions full is
// dropped.
func (d *driver) round(turn int, due float64, depth int) (int, float64) {
	if d.r.stopped.Load() {
		return turn, 0
	}
	full := 0
	for due >= 1 && full < len(d.flows) {
		s := turn % len(d.flows)
		turn++
		if d.flows[s].under >= depth {
			full++
			continue
		}
		full = 0
		d.ask(s, 1)
		due--
	}
	return turn, min(due, 1)
}

func (d *driver) answered(s, n int) {
	f := &d.flows[s]
	if n > f.under {
		d.err = fmt.Errorf("%d answers to %d requests", n, f.under)
		return
	}
	f.under -= n
	d.under -= n
	now := time.Now()
	recording := d.r.recording.Load()
	if recording {
		d.c.mu.Lock()
		defer d.c.mu.Unlock()
	}
	done := 0
	for i := range f.sent {
		first := &f.sent[i]
		k := min(n, first.n)
		n -= k
		first.n -= k
		if recording && k > 0 {
			d.c.hist.addMany(now.Sub(first.at), int64(k))
		}
		if first.n > 0 {
			break
		}
		done = i + 1
		if n == 0 {
			break
		}
	}
	f.sent = append(f.sent[:0], f.sent[done:]...)
}

// openPipes opens n pipes at once; one that fails closes all.
func openPipes(n int, open func(i int) (pipe, error)) ([]pipe, error) {
	pipes, errs := make([]pipe, n), make([]error, n)
	each(n, func(i int) { pipes[i], errs[i] = open(i) })
	if err := errors.Join(errs...); err != nil {
		for i, p := range pipes {
			if errs[i] == nil {
				p.close()
			}
		}
		return nil, err
	}
	return pipes, nil
}

// startPipes sets pipes to work. The pace is that of all together.
func startPipes(pipes []pipe, depth int, pace float64) *running {
	r := &running{conns: make([]connection, len(pipes))}
	for i, p := range pipes {
		r.done.Go(func() {
			c := &r.conns[i]
			err := c.drive(r, p, depth, pace/float64(len(pipes)))
			if err == nil {
				err = p.close()
			}
			c.err = err
		})
	}
	return r
}
