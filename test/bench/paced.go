package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// drainTimeout bounds the wait for answers once a paced load has been stopped.
const drainTimeout = 30 * time.Second

// driveAt sends requests at a pace, per second, whether or not earlier ones
// have been answered: a stall counts for all requests that it delays, as it
// would for independent clients.
func (w *wire) driveAt(pace float64, message func() []byte, done func(*call), stop func() bool) error {
	gap := time.Duration(float64(time.Second) / pace)
	next := time.Now().Add(time.Duration(rand.Int64N(int64(gap))))
	var ended time.Time
	for {
		switch now := time.Now(); {
		case ended.IsZero() && stop():
			ended = now
			next = now.Add(drainTimeout)
		case !ended.IsZero() && now.After(next):
			return fmt.Errorf("%d requests were not answered within %v", len(w.open), drainTimeout)
		}
		if !ended.IsZero() && len(w.open) == 0 {
			return w.out.Flush()
		}
		for ended.IsZero() && !time.Now().Before(next) {
			if err := w.start(&call{begin: time.Now()}, message()); err != nil {
				return err
			}
			next = next.Add(gap)
		}
		if err := w.out.Flush(); err != nil {
			return err
		}
		if err := w.receiveUntil(next, done); err != nil {
			return err
		}
	}
}

// receiveUntil takes what comes first, at most until the given time.
func (w *wire) receiveUntil(until time.Time, done func(*call)) error {
	ready, err := await(w.conn, w.in, 9, until)
	if err != nil || !ready {
		return err
	}
	for first := true; first || w.pending(); first = false {
		c, err := w.next()
		switch {
		case err != nil:
			return err
		case c == nil:
		case c.status != "" && w.failed != nil:
			w.failed.Add(1)
		case c.status != "":
			return fmt.Errorf("answered with gRPC status %s", c.status)
		default:
			done(c)
		}
	}
	return nil
}
