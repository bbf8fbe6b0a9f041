package transport

import "time"

// started is where uptime begins.
var started = time.Now()

// uptime is a clock that setting the machine's doesn't move: with that one set back by an
// hour, a dead link would not be noticed for an hour, and set forward every link would seem
// to be dead. In nanoseconds, never 0.
func uptime() int64 { return int64(time.Since(started)) + 1 }
